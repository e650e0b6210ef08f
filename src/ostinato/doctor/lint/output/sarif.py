"""For code scanning: SARIF 2.1.0, with rules, help and fingerprints."""

from __future__ import annotations

import json
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ostinato.doctor.catalog import RULES, Rule
from ostinato.doctor.lint import LintFinding, LintResult, Problem

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def write(result: LintResult) -> str:
    """Return one SARIF log with one run."""
    codes = sorted({one.code for one in result.findings})
    run = {
        "tool": {
            "driver": {
                "name": "ostinato lint",
                "version": version("ostinato"),
                "semanticVersion": version("ostinato"),
                "rules": [_rule(RULES[code]) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": list(map(_notification, result.problems)),
            }
        ],
        "results": [_result(one, codes.index(one.code)) for one in result.findings],
    }
    return json.dumps(
        {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False
    )


def _rule(rule: Rule) -> dict[str, Any]:
    tries = "\n".join(f"- {one.what} [{one.safety.value}]" for one in rule.remedies)
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary or rule.name},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\n{tries}\n\nFalse alarms: {rule.false_alarms}"},
        "helpUri": _page(rule.code),
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["performance", "pytorch"], "problem.severity": "warning"},
    }


def _page(code: str) -> str:
    """Return where the page of a code stands: where the package says, else where it lies here."""
    for entry in metadata("ostinato").get_all("Project-URL") or ():
        name, _, address = entry.partition(",")
        if name.strip().lower() == "findings":
            return f"{address.strip().rstrip('/')}/{code}.md"
    return Path(str(files("ostinato") / "explanations" / f"{code}.md")).as_uri()


def _result(one: LintFinding, rule_index: int) -> dict[str, Any]:
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(one.path)},
            "region": {
                "startLine": one.line,
                "startColumn": one.column,
                "endLine": one.end_line,
                "endColumn": one.end_column,
                "snippet": {"text": one.expression},
            },
        }
    }
    if one.function:
        place["logicalLocations"] = [{"fullyQualifiedName": one.function, "kind": "function"}]
    return {
        "ruleId": one.code,
        "ruleIndex": rule_index,
        "level": "warning",
        "message": {"text": f"{one.name}: {one.fact}"},
        "locations": [place],
        "partialFingerprints": {"ostinatoLint/v1": one.fingerprint},
    }


def _notification(problem: Problem) -> dict[str, Any]:
    return {
        "level": "warning",
        "message": {"text": f"not read: {problem.why}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(problem.path)},
                    "region": {"startLine": problem.line},
                }
            }
        ],
    }
