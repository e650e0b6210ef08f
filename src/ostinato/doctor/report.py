"""The report: findings ranked by what they cost, what could not be told, and the verdict.

Plain values; `diagnose` makes it, `render` prints it, `baseline` compares two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ostinato.doctor.evidence import Ending, Evidence, Looks
from ostinato.doctor.finding import Abstention, Finding
from ostinato.doctor.interpreter_use import LineUse, ThreadUse
from ostinato.doctor.pace import SHARE
from ostinato.doctor.probe import cost_words, percent
from ostinato.units import format_us

_LEAST_SHARE = 0.05
_HIDDEN = 0.1
_APART = 1.25
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in one run.

    Attributes:
        verdict: The answer in one sentence or two.
        findings: The dearest first; those without a cost last, by code.
        abstentions: Questions that the evidence cannot answer, and what would.
        problems: What went wrong while recording; the rest of the report stands.
        step_us, mean_us: How long a step is, the median and the mean.
        busy: The lines at which the thread that makes the steps runs most of the time.
        call_us, cycle_us: How long a call is alone, and from its begin to that of the next.
        outside: The part of the time that passed outside of the steps, once they had begun; None
            where nobody knows. `outside_at` are the lines at which most of it did.
        before_us, after_us: How long was watched before the first step and after the last one;
            None where nobody knows.
        looks: At how many steps was looked, where it was not at all of them.
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
    mean_us: float | None = None
    call_us: float | None = None
    cycle_us: float | None = None
    outside: float | None = None
    outside_at: tuple[LineUse, ...] = ()
    before_us: float | None = None
    after_us: float | None = None
    looks: Looks | None = None

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
    stepping = _stepping(evidence)
    return Report(
        title=subject.title or evidence.source,
        verdict=verdict(evidence, ranked),
        findings=ranked,
        abstentions=tuple(sorted(abstentions, key=lambda each: each.code)),
        problems=tuple(dict.fromkeys((*ended, *_hidden(stepping), *evidence.problems, *problems))),
        step_name=evidence.step_name,
        steps=evidence.steps_seen,
        step_us=step_us,
        machine=_machine(evidence),
        seconds=subject.seconds,
        busy=_worth_telling(stepping.busy if stepping else ()),
        mean_us=evidence.mean_step_us(),
        call_us=evidence.call_us(),
        cycle_us=evidence.cycle_us(),
        outside=evidence.outside(),
        outside_at=_outside_at(evidence),
        before_us=evidence.before_us,
        after_us=evidence.after_us,
        looks=_thinned(evidence.looks),
    )


def _stepping(evidence: Evidence) -> ThreadUse | None:
    """Return the thread that makes steps and ran most."""
    threads = evidence.gil.threads if evidence.gil is not None else ()
    stepping = [thread for thread in threads if thread.in_steps and thread.busy]
    return max(stepping, key=lambda thread: thread.runs, default=None)


def _outside_at(evidence: Evidence) -> tuple[LineUse, ...]:
    threads = evidence.gil.threads if evidence.gil is not None else ()
    stepping = [thread for thread in threads if thread.outside]
    most = max(stepping, key=lambda thread: (thread.runs, thread.samples), default=None)
    return _worth_telling(most.outside if most else ())


def _worth_telling(lines: tuple[LineUse, ...]) -> tuple[LineUse, ...]:
    return tuple(line for line in lines if line.share >= _LEAST_SHARE)


def _hidden(stepping: ThreadUse | None) -> tuple[str, ...]:
    if stepping is None or stepping.hidden < _HIDDEN:
        return ()
    words = (
        f"{percent(stepping.hidden)} of the time that {stepping.name} ran was told late, once "
        "somebody let the GIL go: there, lines that hold it take more than is said"
    )
    return (words,)


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
        words = f"nothing was found in {_steps(evidence.steps_seen)} of {evidence.step_name}"
        return words + _beside_them(evidence)
    first = ranked[0]
    where = f" at {first.place}" if first.place is not None else ""
    words = f"{first.fact}{where}"
    cost = cost_words(first.cost)
    words += f": {cost}" if cost else ""
    rest = len(ranked) - 1
    return words + (f"; and {rest} more finding{'s' * (rest > 1)}" if rest else "")


def _beside_them(evidence: Evidence) -> str:
    outside = evidence.outside()
    if outside is None or outside < _MOSTLY:
        return ""
    words = f", and {percent(outside)} of the time passed outside of them"
    lines = _outside_at(evidence)
    return words + (f", {percent(lines[0].share)} at {lines[0].place}" if lines else "")


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
    words += _lengths(report)
    if report.seconds:
        words += f", in {format_us(report.seconds * 1e6)}{around_the_steps(report)}"
    return words


def around_the_steps(report: Report) -> str:
    """Return how much of the time watched no step is about, where that is a part worth telling."""
    parts = ((report.before_us, "before the first step"), (report.after_us, "after the last"))
    told = [
        f"{format_us(us)} {when}"
        for us, when in parts
        if us is not None and us >= _LEAST_SHARE * report.seconds * 1e6
    ]
    return f", of which {' and '.join(told)}" if told else ""


def _thinned(looks: Looks | None) -> Looks | None:
    return looks if looks is not None and looks.one_of > 1 and looks.steps < looks.of else None


def what_was_thinned(report: Report) -> str:
    """Return at how many steps was looked, and why not at all; empty where it was at all."""
    looks = report.looks
    if looks is None:
        return ""
    return (
        f"{looks.steps} of {looks.of} steps were looked at, 1 in {looks.one_of} lately: more would "
        f"take over {percent(SHARE)} of their time; each stands for those passed over"
    )


def _lengths(report: Report) -> str:
    """Return how long steps are; a call and its step apart, where most time passes between."""
    if report.step_us is None:
        return ""
    words = f", {format_us(report.step_us)} each"
    if is_mostly_outside(report) and report.call_us is not None and report.cycle_us is not None:
        call, cycle = format_us(report.call_us), format_us(report.cycle_us)
        words = f", {call} in each call and {cycle} from one to the next"
    if report.mean_us and not 1 / _APART <= report.mean_us / (report.step_us or 1.0) <= _APART:
        words += f" ({format_us(report.mean_us)} a step in the mean)"
    return words


def is_mostly_outside(report: Report) -> bool:
    """Return whether most time passed outside of the steps, so that this is told as well."""
    return report.outside is not None and report.outside >= _MOSTLY


def lines_outside(report: Report) -> tuple[LineUse, ...]:
    """Return the lines outside of the steps that are told: not those that ran, told already."""
    if not is_mostly_outside(report):
        return ()
    told = {(use.place.path, use.place.line) for use in report.busy}
    return tuple(u for u in report.outside_at if (u.place.path, u.place.line) not in told)
