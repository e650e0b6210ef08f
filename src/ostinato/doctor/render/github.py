"""Findings as annotations of GitHub Actions: one line each, shown at the line of the source."""

from __future__ import annotations

from ostinato.doctor.finding import Finding
from ostinato.doctor.probe import cost_words
from ostinato.doctor.render.text import short_path
from ostinato.doctor.report import Report


def github(report: Report) -> str:
    """Return one annotation for each finding of the report."""
    return "".join(f"{_of_finding(finding)}\n" for finding in report.findings)


def annotation(
    title: str, words: str, path: str = "", *, line: int = 0, end_line: int = 0, column: int = 0
) -> str:
    """Return one `::warning` command; what is empty or 0 is left out."""
    given = {"title": title, "file": path, "line": line, "endLine": end_line, "col": column}
    properties = ",".join(f"{name}={_property(str(v))}" for name, v in given.items() if v)
    return f"::warning {properties}::{_data(words)}"


def _of_finding(finding: Finding) -> str:
    words = finding.fact
    cost = cost_words(finding.cost)
    words += f" ({cost})" if cost else ""
    if finding.remedies:
        words += f"; try: {finding.remedies[0].what}"
    title, place = f"{finding.code} {finding.name}", finding.place
    if place is None:
        return annotation(title, words)
    return annotation(title, words, short_path(place.path), line=place.line, column=place.column)


def _data(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _data(words).replace(":", "%3A").replace(",", "%2C")
