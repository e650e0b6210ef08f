"""Findings as text: fact, place, cost, mechanism, remedy, and where to read more."""

from __future__ import annotations

import os
import textwrap
from dataclasses import replace

from ostinato.doctor.finding import Abstention, Finding, Place
from ostinato.doctor.interpreter_use import LineUse
from ostinato.doctor.probe import cost_words, spread_words
from ostinato.doctor.report import Report, headline, lines_outside, what_was_thinned

_WIDTH = 100
_INDENT = " " * 9


def text(report: Report) -> str:
    """Return the whole report."""
    blocks = [_head(report)]
    blocks += [finding_text(finding) for finding in report.findings]
    if report.abstentions:
        blocks.append(_abstentions(report.abstentions))
    if report.problems:
        blocks.append("\n".join(_wrapped("note", problem) for problem in report.problems))
    return "\n\n".join(blocks) + "\n"


def _head(report: Report) -> str:
    lines = [_fill(f"verdict: {report.verdict}", ""), _fill(f"watched: {headline(report)}", "")]
    thinned = what_was_thinned(report)
    if thinned:
        lines.append(_fill(f"looked:  {thinned}", _INDENT))
    if report.machine:
        lines.append(_fill(f"machine: {report.machine}", ""))
    lines += _shares("busy at:", report.busy)
    lines += _shares("outside:", lines_outside(report))
    return "\n".join(lines)


def _shares(label: str, uses: tuple[LineUse, ...]) -> list[str]:
    labels = (label, *[" " * len(label)] * len(uses))
    return [
        _fill(f"{label} {use.share:4.0%} {leaf(use.place)}", " " * 14)
        for label, use in zip(labels, uses, strict=False)
    ]


def finding_text(finding: Finding) -> str:
    """Return one finding."""
    lines = [_fill(f"{finding.code} {finding.name}: {finding.fact}", "       ")]
    if finding.place is not None:
        lines.append(_wrapped("where", where(finding.place)))
        inner = via(finding.place)
        if inner:
            lines.append(_wrapped("within", inner))
    for place in finding.others:
        inner = via(place)
        lines.append(_wrapped("also", f"{where(place)}, within {inner}" if inner else where(place)))
    if finding.cost is not None:
        words = (cost_words(finding.cost), spread_words(finding.cost))
        lines.append(_wrapped("cost", ", ".join(filter(None, words))))
    lines.append(_wrapped("why", finding.why))
    lines += [_wrapped("try", f"{r.what} [{r.safety}]") for r in finding.remedies]
    lines.append(_wrapped("more", f"ostinato explain {finding.page}"))
    return "\n".join(lines)


def where(place: Place) -> str:
    """Return a place with a path that a terminal can follow."""
    path = short_path(place.path)
    words = f"{path}:{place.line}"
    if place.code:
        words += f" `{place.code}`"
    return words + (f" in {place.function}" if place.function not in ("", "<module>") else "")


def leaf(place: Place) -> str:
    """Return a place as in `where`, with a library's path from its package on."""
    _, is_installed, tail = place.path.rpartition("/site-packages/")
    return where(replace(place, path=tail) if is_installed else place)


def via(place: Place) -> str:
    """Return the innermost call below a place, where that is a library's; else nothing."""
    if not place.stack or place.stack[-1].startswith(f"{place.path}:{place.line} "):
        return ""
    path, _, rest = place.stack[-1].partition(":")
    _, is_installed, tail = path.rpartition("/site-packages/")
    return f"{tail if is_installed else path}:{rest.replace(' ', ' in ', 1)}"


def short_path(path: str) -> str:
    """Return a path relative to here where it lies below."""
    folder = os.getcwd() + os.sep
    return path.removeprefix(folder)


def _abstentions(abstentions: tuple[Abstention, ...]) -> str:
    lines = ["not told:"]
    for each in abstentions:
        lines.append(_fill(f"  {each.code} {each.name}: {each.why}", _INDENT))
        lines.append(_wrapped("try", each.settles_it))
    return "\n".join(lines)


def _wrapped(label: str, words: str) -> str:
    return _fill(f"  {label:<6} {words}", _INDENT)


def _fill(words: str, indent: str) -> str:
    return textwrap.fill(
        words,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
