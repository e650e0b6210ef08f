"""Two reports of the same program, one earlier: what is new, what became dearer, what is gone.

A finding is the same when its code and its line of source are: line numbers move with every edit.
Times wander from run to run, so a finding is dearer only when it costs half as much again, and a
step is slower only by more than a fifth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.doctor.finding import Finding
from ostinato.doctor.report import Report
from ostinato.errors import UsageError
from ostinato.units import format_us

_DEARER = 1.5
_LEAST_US = 20.0
_SLOWER = 1.2


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, in words."""

    words: str
    is_worse: bool


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an earlier report said: the cost of each finding, by code and line of source."""

    costs_us: dict[tuple[str, str], float | None]
    step_us: float | None


def read_baseline(path: Path) -> Baseline:
    """Return what `ostinato doctor run --json` wrote.

    Raises:
        UsageError: OST7026, the file is no such report.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _no_report(path, f"it cannot be read as JSON: {error}") from error
    if isinstance(document, dict) and "$schema" in document and "runs" in document:
        raise _no_report(path, "it is SARIF, and the report as JSON is needed")
    if not isinstance(document, dict) or not isinstance(document.get("findings"), list):
        raise _no_report(path, "it has no list of findings")
    try:
        costs = {_key_of(finding): _us_of(finding) for finding in document["findings"]}
        step_us = document.get("step_us")
        return Baseline(costs_us=costs, step_us=None if step_us is None else float(step_us))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = "its findings are not those of `doctor run`, which have a place and a cost each"
        raise _no_report(path, why) from error


def _no_report(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is no report of `ostinato doctor run`: {why}",
        code="OST7026",
        remedy="write one with `ostinato doctor run --json FILE -- script.py`",
    )


def compare(before: Baseline, now: Report) -> tuple[Change, ...]:
    """Return every difference that matters, the worse first."""
    changes = [change for finding in now.findings if (change := _judge(before, finding))]
    present = {_key(finding) for finding in now.findings}
    for code, line in sorted(before.costs_us.keys() - present):
        where = f" at `{line}`" if line else ""
        changes.append(Change(f"gone: {code}{where}", is_worse=False))
    if before.step_us and now.step_us and now.step_us > _SLOWER * before.step_us:
        words = f"slower: a step took {format_us(before.step_us)}, now {format_us(now.step_us)}"
        changes.append(Change(words, is_worse=True))
    return tuple(sorted(changes, key=lambda change: not change.is_worse))


def _judge(before: Baseline, finding: Finding) -> Change | None:
    key = _key(finding)
    where = f" at {finding.place}" if finding.place is not None else ""
    if key not in before.costs_us:
        return Change(f"new: {finding.code} {finding.name}{where}: {finding.fact}", is_worse=True)
    old = before.costs_us[key]
    new = finding.cost.us_per_step if finding.cost is not None else None
    if old is None or new is None or new <= max(_DEARER * old, old + _LEAST_US):
        return None
    words = f"dearer: {finding.code} {finding.name}{where}: {format_us(old)}, now {format_us(new)}"
    return Change(words, is_worse=True)


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.place.code if finding.place is not None else ""


def _key_of(finding: dict[str, Any]) -> tuple[str, str]:
    place = finding["place"]
    return str(finding["code"]), str(place["code"]) if place else ""


def _us_of(finding: dict[str, Any]) -> float | None:
    cost = finding["cost"]
    return None if cost is None or cost["us_per_step"] is None else float(cost["us_per_step"])
