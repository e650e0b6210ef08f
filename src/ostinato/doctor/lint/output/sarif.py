"""For code scanning: SARIF 2.1.0, with rules, help and fingerprints."""

from __future__ import annotations

import json
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ostinato.doctor.catalog import Rule
from ostinato.doctor.lint import LintFinding, LintResult, Problem
from ostinato.doctor.render.sarif import location, sarif_document


def write(result: LintResult) -> str:
    """Return one SARIF log with one run."""
    told = list(map(_notification, result.problems))
    document = sarif_document(
        "ostinato lint",
        [(one.code, _result(one)) for one in result.findings],
        _rule,
        driver={"semanticVersion": version("ostinato")},
        run={"invocations": [{"executionSuccessful": True, "toolExecutionNotifications": told}]},
    )
    return json.dumps(document, indent=1, ensure_ascii=False)


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


def _result(one: LintFinding) -> dict[str, Any]:
    place = location(
        {"uri": quote(one.path)},
        line=one.line,
        column=one.column,
        end_line=one.end_line,
        end_column=one.end_column,
        code=one.expression,
    )
    if one.function:
        place["logicalLocations"] = [{"fullyQualifiedName": one.function, "kind": "function"}]
    return {
        "message": {"text": f"{one.name}: {one.fact}"},
        "locations": [place],
        "partialFingerprints": {"ostinatoLint/v1": one.fingerprint},
    }


def _notification(problem: Problem) -> dict[str, Any]:
    return {
        "level": "warning",
        "message": {"text": f"not read: {problem.why}"},
        "locations": [location({"uri": quote(problem.path)}, line=problem.line)],
    }
