"""The report: findings ranked by what they cost, what could not be told, and the verdict.

Plain values; `diagnose` makes it, `render` prints it, `baseline` compares two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ostinato.doctor.evidence import Ending, Evidence
from ostinato.doctor.finding import Abstention, Finding
from ostinato.doctor.interpreter_use import LineUse
from ostinato.doctor.probe import cost_words
from ostinato.units import format_us

_LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in one run.

    Attributes:
        verdict: The answer in one sentence or two.
        findings: The dearest first; those without a cost last, by code.
        abstentions: Questions that the evidence cannot answer, and what would.
        problems: What went wrong while recording; the rest of the report stands.
        busy: The lines at which the thread that makes the steps spends most of its time.
    """

    title: str
    verdict: str
    findings: tuple[Finding, ...]
    abstentions: tuple[Abstention, ...]
    problems: tuple[str, ...]
    step_name: str = ""
    steps: int = 0
    step_us: float | None = None
    machine: str = ""
    seconds: float = 0.0
    busy: tuple[LineUse, ...] = ()

    def __str__(self) -> str:
        from ostinato.doctor.render.text import text  # which reads reports

        return text(self)


def make_report(
    evidence: Evidence,
    findings: Iterable[Finding],
    abstentions: Iterable[Abstention],
    problems: Iterable[str] = (),
) -> Report:
    """Rank the findings and word the verdict."""
    step_us = evidence.step_us()
    ranked = tuple(sorted(findings, key=lambda finding: rank(finding, step_us)))
    subject = evidence.subject
    ended = _ending(evidence)
    return Report(
        title=subject.title or evidence.source,
        verdict=verdict(evidence, ranked),
        findings=ranked,
        abstentions=tuple(sorted(abstentions, key=lambda each: each.code)),
        problems=tuple(dict.fromkeys((*ended, *evidence.problems, *problems))),
        step_name=evidence.step_name,
        steps=evidence.steps_seen,
        step_us=step_us,
        machine=_machine(evidence),
        seconds=subject.seconds,
        busy=_busy(evidence),
    )


def _busy(evidence: Evidence) -> tuple[LineUse, ...]:
    threads = evidence.gil.threads if evidence.gil is not None else ()
    stepping = [thread for thread in threads if thread.in_steps and thread.busy]
    if not stepping:
        return ()
    busiest = max(stepping, key=lambda thread: thread.runs)
    return tuple(line for line in busiest.busy if line.share >= _LEAST_SHARE)


def rank(finding: Finding, step_us: float | None) -> tuple[float, str]:
    """Return a key that puts the dearest first; what has no cost comes last, by code."""
    cost = finding.cost
    if cost is None:
        return (1.0, finding.code)
    if cost.us_per_step is not None:
        return (-cost.us_per_step, finding.code)
    return (-(cost.share or 0.0) * (step_us or 1.0), finding.code)


def verdict(evidence: Evidence, ranked: tuple[Finding, ...]) -> str:
    """Return the answer in one sentence or two."""
    if not ranked:
        if not evidence.steps_seen:
            return "no step was seen, and nothing else was found"
        return f"nothing was found in {_steps(evidence.steps_seen)} of {evidence.step_name}"
    first = ranked[0]
    where = f" at {first.place}" if first.place is not None else ""
    words = f"{first.fact}{where}"
    cost = cost_words(first.cost)
    words += f": {cost}" if cost else ""
    rest = len(ranked) - 1
    return words + (f"; and {rest} more finding{'s' * (rest > 1)}" if rest else "")


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def _ending(evidence: Evidence) -> tuple[str, ...]:
    subject = evidence.subject
    if subject.ending is Ending.FINISHED:
        return ()
    words = {
        Ending.EXITED: f"the program exited with status {subject.exit_status}",
        Ending.RAISED: f"the program raised {subject.detail}",
        Ending.SIGNALLED: f"the program was ended by {subject.detail}",
        Ending.STILL_RUNNING: "the program was still running",
        Ending.REPLACED: "the program put another one in its place, which was not watched",
    }
    if not evidence.collected:
        return (words[subject.ending],)
    return (f"{words[subject.ending]}; what was kept until then is reported",)


def _machine(evidence: Evidence) -> str:
    subject = evidence.subject
    parts = [subject.accelerator or subject.cpu]
    if subject.cores:
        parts.append(f"{subject.cores} cores")
    if subject.torch:
        parts.append(f"torch {subject.torch}")
    if subject.python:
        parts.append(f"Python {subject.python}")
    return ", ".join(part for part in parts if part)


def headline(report: Report) -> str:
    """Return what was watched: steps, their time, the machine."""
    words = f"{_steps(report.steps)} of {report.step_name}" if report.steps else "no steps"
    if report.step_us is not None:
        words += f", {format_us(report.step_us)} each"
    if report.seconds:
        words += f", in {format_us(report.seconds * 1e6)}"
    return words
