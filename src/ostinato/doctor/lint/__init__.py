"""The doctor's findings from source alone: nothing is imported, nothing runs.

`lint` reads every file apart (`reading.py`), puts what it learnt together (`reaching.py`), and
reports what holds (`verdict.py`). It knows which functions run in every step and which values are
tensors, so that ordinary code stays quiet.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from ostinato.doctor.catalog import RULES
from ostinato.doctor.lint.baseline import read_baseline, write_baseline
from ostinato.doctor.lint.facts import Problem
from ostinato.doctor.lint.files import read_files
from ostinato.doctor.lint.found import (
    LintFinding,
    UnusedIgnore,
    characters,
    expression_at,
    fingerprint,
)
from ostinato.doctor.lint.ignores import MARK, Ignore, ignores_in
from ostinato.doctor.lint.settings import CODES, Settings, combined, read_settings
from ostinato.doctor.lint.sources import Source, find_sources, read_text
from ostinato.doctor.lint.verdict import Seen, judge

__all__ = [
    "CODES",
    "LintFinding",
    "LintResult",
    "Problem",
    "Settings",
    "UnusedIgnore",
    "combined",
    "lint",
    "read_settings",
    "write_baseline",
]


@dataclass(frozen=True, slots=True)
class LintResult:
    """What a run found.

    Attributes:
        findings: By path and line; those in the baseline are left out.
        problems: Files that could not be read.
        unused: Comments that silence nothing.
        files: How many were read.
        known: How many findings the baseline held back.
    """

    findings: tuple[LintFinding, ...]
    problems: tuple[Problem, ...]
    unused: tuple[UnusedIgnore, ...]
    files: int
    known: int = 0


def lint(
    paths: Sequence[Path | str], settings: Settings | None = None, *, processes: int | None = None
) -> LintResult:
    """Read the Python files at or below some paths, and report what makes inference slow.

    Args:
        settings: None: those of the nearest pyproject.toml of the first path.
        processes: How many read; None: what the machine has, if there is enough to read.

    Raises:
        UsageError: OST7000, a path does not exist; OST7002, OST7003: settings or baseline.
    """
    places = [Path(path) for path in paths]
    if settings is None:
        settings = read_settings(places[0] if places else Path())
    known = read_baseline(settings.baseline) if settings.baseline else frozenset[str]()
    sources, problems = find_sources(places, settings.exclude)
    modules, unread = read_files(sources, processes)
    findings, unused = _with_words(judge(modules), sources, settings)
    new = [one for one in findings if one.fingerprint not in known]
    return LintResult(
        findings=tuple(new),
        problems=tuple(sorted((*problems, *unread), key=lambda one: (one.path, one.line))),
        unused=tuple(unused),
        files=len(sources),
        known=len(findings) - len(new),
    )


def _with_words(
    seen: Sequence[Seen], sources: Sequence[Source], settings: Settings
) -> tuple[list[LintFinding], list[UnusedIgnore]]:
    by_path: dict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        by_path[one.path].append(one)
    findings: list[LintFinding] = []
    unused: list[UnusedIgnore] = []
    for source in sources:
        here = by_path.get(source.path, [])
        text = read_text(source.path) if here or _speaks_of_us(source.path) else ""
        if isinstance(text, Problem) or not text:
            continue
        ignores = ignores_in(text)
        kept, silent = _not_ignored(_described(here, text, settings), ignores)
        findings += kept
        unused += [UnusedIgnore(source.path, one.line, one.words) for one in silent]
    return findings, unused


def _speaks_of_us(path: str) -> bool:
    try:
        return MARK.encode() in Path(path).read_bytes()
    except OSError:
        return False


def _described(seen: Sequence[Seen], text: str, settings: Settings) -> list[LintFinding]:
    lines = text.split("\n")
    times: Counter[tuple[str, str, str]] = Counter()
    found: list[LintFinding] = []
    for one in seen:
        code = f"OST{one.number}"
        if code not in settings.codes or _is_left_out(one.path, code, settings):
            continue
        function = "" if one.function == "<module>" else one.function
        expression = expression_at(lines, one.spot)
        key = (code, function, expression)
        path = one.path.replace(os.sep, "/")
        found.append(
            LintFinding(
                code=code,
                name=RULES[code].name,
                path=path,
                line=one.spot[0],
                column=characters(lines, one.spot[0], one.spot[1]),
                end_line=one.spot[2],
                end_column=characters(lines, one.spot[2], one.spot[3]),
                function=function,
                expression=expression,
                fact=one.fact,
                fingerprint=fingerprint(code, _relative(path), function, expression, times[key]),
            )
        )
        times[key] += 1
    return found


def _relative(path: str) -> str:
    """Return a path as the working folder sees it, so that `src` and `./src` are one."""
    try:
        return os.path.relpath(path).replace(os.sep, "/")
    except ValueError:  # another drive
        return path


def _is_left_out(path: str, code: str, settings: Settings) -> bool:
    file = PurePath(_relative(path))
    return any(
        code in codes and any(place.match(pattern) for place in (file, *file.parents))
        for pattern, codes in settings.per_file_ignores
    )


def _not_ignored(
    findings: Sequence[LintFinding], ignores: Sequence[Ignore]
) -> tuple[list[LintFinding], list[Ignore]]:
    used: set[Ignore] = set()
    kept: list[LintFinding] = []
    for one in findings:
        silent = {
            ignore
            for ignore in ignores
            if one.line <= ignore.covers <= max(one.line, one.end_line)
            and ignore.silences(one.code)
        }
        used |= silent
        if not silent:
            kept.append(one)
    return kept, [ignore for ignore in ignores if ignore not in used]
