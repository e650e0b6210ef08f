"""Findings as SARIF 2.1.0, which code hosts and editors show beside the source."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ostinato.doctor.catalog import RULES, Rule
from ostinato.doctor.finding import Finding, Place
from ostinato.doctor.probe import cost_words
from ostinato.doctor.report import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: Report) -> str:
    """Return the findings of the report as one SARIF run."""
    document = sarif_document(
        "ostinato",
        [(finding.code, _result(finding)) for finding in report.findings],
        _rule,
        run={"originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}}},
    )
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def sarif_document(
    tool: str,
    results: Sequence[tuple[str, Mapping[str, Any]]],
    describe: Callable[[Rule], dict[str, Any]],
    *,
    driver: Mapping[str, Any] = MappingProxyType({}),
    run: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return a SARIF log with one run.

    Args:
        results: The code of each finding, and what a result says besides its rule.
        describe: What the log says of a rule; asked once for each code that was found.
        driver, run: Further properties of the tool and of the run.
    """
    codes = sorted({code for code, _ in results})
    about = {"name": tool, "version": version("ostinato"), **driver}
    rules = [describe(RULES[code]) for code in codes]
    found = [
        {"ruleId": code, "ruleIndex": codes.index(code), "level": "warning", **result}
        for code, result in results
    ]
    whole = {
        "tool": {"driver": {**about, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        **run,
        "results": found,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [whole]}


def location(
    artifact: Mapping[str, str],
    *,
    line: int,
    column: int = 0,
    end_line: int = 0,
    end_column: int = 0,
    code: str = "",
) -> dict[str, Any]:
    """Return a place in a file; what is 0 or empty is not known, and left out."""
    numbers = {"startLine": line, "startColumn": column}
    numbers |= {"endLine": end_line, "endColumn": end_column}
    region: dict[str, Any] = {name: number for name, number in numbers.items() if number}
    if code:
        region["snippet"] = {"text": code}
    return {"physicalLocation": {"artifactLocation": dict(artifact), "region": region}}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {"text": "\n".join(f"{r.what} [{r.safety}]" for r in rule.remedies)},
        "defaultConfiguration": {"level": "warning"},
    }


def _result(finding: Finding) -> dict[str, Any]:
    words = finding.fact
    cost = cost_words(finding.cost)
    words += f" ({cost})" if cost else ""
    result: dict[str, Any] = {"message": {"text": words}}
    if finding.place is not None:
        result["locations"] = [_location(finding.place)]
    if finding.others:
        result["relatedLocations"] = [_location(place) for place in finding.others]
    return result


def _location(place: Place) -> dict[str, Any]:
    line = max(place.line, 1)
    return location(_artifact(place.path), line=line, column=place.column, code=place.code)


def _artifact(path: str) -> dict[str, str]:
    absolute = Path(os.path.abspath(path))
    if absolute.is_relative_to(Path.cwd()):
        return {"uri": absolute.relative_to(Path.cwd()).as_posix(), "uriBaseId": "SRCROOT"}
    return {"uri": absolute.as_uri()}
