"""Findings as annotations of GitHub Actions: one line each, shown at the line of the source."""

from __future__ import annotations

from collections.abc import Iterable

from ostinato.doctor.finding import Finding
from ostinato.doctor.probe import cost_words
from ostinato.doctor.render.text import short_path
from ostinato.doctor.report import Report


def github(report: Report) -> str:
    """Return one annotation for each finding of the report."""
    return annotation_lines(report.findings)


def annotation_lines(findings: Iterable[Finding]) -> str:
    """Return one `::warning` line for each finding."""
    return "".join(f"{_annotation(finding)}\n" for finding in findings)


def _annotation(finding: Finding) -> str:
    properties = [f"title={_property(f'{finding.code} {finding.name}')}"]
    if finding.place is not None:
        properties.append(f"file={_property(short_path(finding.place.path))}")
        properties.append(f"line={finding.place.line}")
        if finding.place.column:
            properties.append(f"col={finding.place.column}")
    words = finding.fact
    cost = cost_words(finding.cost)
    words += f" ({cost})" if cost else ""
    if finding.remedies:
        words += f"; try: {finding.remedies[0].what}"
    return f"::warning {','.join(properties)}::{_data(words)}"


def _data(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _data(words).replace(":", "%3A").replace(",", "%2C")
