"""Findings as SARIF 2.1.0, which code hosts and editors show beside the source."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ostinato.doctor.catalog import RULES, Rule
from ostinato.doctor.finding import Finding, Place
from ostinato.doctor.probe import cost_words
from ostinato.doctor.report import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: Report) -> str:
    """Return the findings of the report as one SARIF run."""
    return sarif_log(report.findings)


def sarif_log(findings: Iterable[Finding]) -> str:
    """Return a SARIF log with one run that holds `findings`."""
    found = list(findings)
    codes = sorted({finding.code for finding in found})
    index = {code: number for number, code in enumerate(codes)}
    driver = {
        "name": "ostinato",
        "version": version("ostinato"),
        "rules": [_rule(RULES[code]) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}},
        "results": [_result(finding, index[finding.code]) for finding in found],
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {"text": "\n".join(f"{r.what} [{r.safety}]" for r in rule.remedies)},
        "defaultConfiguration": {"level": "warning"},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    words = finding.fact
    cost = cost_words(finding.cost)
    words += f" ({cost})" if cost else ""
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": "warning",
        "message": {"text": words},
    }
    if finding.place is not None:
        result["locations"] = [_location(finding.place)]
    if finding.others:
        result["relatedLocations"] = [_location(place) for place in finding.others]
    return result


def _location(place: Place) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(place.line, 1)}
    if place.column:
        region["startColumn"] = place.column
    if place.code:
        region["snippet"] = {"text": place.code}
    return {"physicalLocation": {"artifactLocation": _artifact(place.path), "region": region}}


def _artifact(path: str) -> dict[str, str]:
    absolute = Path(os.path.abspath(path))
    if absolute.is_relative_to(Path.cwd()):
        return {"uri": absolute.relative_to(Path.cwd()).as_posix(), "uriBaseId": "SRCROOT"}
    return {"uri": absolute.as_uri()}
