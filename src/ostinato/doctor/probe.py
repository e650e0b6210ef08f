"""What a probe is: a pure function from evidence to findings or abstentions.

A probe reads nothing but the evidence, keeps nothing, and either finds something, says what it
would need to know, or says nothing. Each stands in `probes/` in a file named for its finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import quantiles

from ostinato.doctor.catalog import Rule
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Abstention, Basis, Cost, Finding
from ostinato.units import format_us

Verdict = Finding | Abstention | None
Probe = Callable[[Evidence], Verdict]

_ROUNDED = 1.0 + 1e-9
_SPREADS = 4  # times; fewer have no quartiles

ONE_WINDOW = "one window was profiled"
"""Why what a profiler saw has no spread."""

ENOUGH_STEPS = 8
"""Fewer steps than this are the warm-up, or say nothing about a loop."""


def abstain(rule: Rule, why: str, settles_it: str) -> Abstention:
    """Return an abstention of this rule."""
    return Abstention(code=rule.code, name=rule.name, why=why, settles_it=settles_it)


def cost_in_steps(
    evidence: Evidence,
    total_us: float,
    *,
    basis: Basis = Basis.MEASURED,
    uneven: bool = False,
) -> Cost | None:
    """Return what `total_us` over the whole watch is in one step; None without steps.

    Its share is that of the usual step, the median. What a few long steps bear, because it is
    `uneven` or more than a usual step is long, is a share of the mean. What is more than the mean
    as well lies beside the steps, in part at least, and is no share of one; nor is what was
    inferred for another machine.
    """
    step_us, mean_us = evidence.step_us(), evidence.mean_step_us()
    if step_us is None or mean_us is None or not evidence.steps_seen:
        return None
    us = total_us / evidence.steps_seen
    whole_us = mean_us if uneven or us > step_us else step_us
    measured = basis is Basis.MEASURED
    beside = measured and us > _ROUNDED * whole_us
    return Cost(
        us_per_step=us,
        share=min(us / whole_us, 1.0) if measured and whole_us > 0 and not beside else None,
        kind=basis,
        steps=evidence.steps_seen,
        beside=beside,
    )


def with_spread(cost: Cost | None, times_us: Sequence[float], each: str) -> Cost | None:
    """Return a cost with the median and the spread of the times it is made of.

    Args:
        each: What one of them is, such as "wait".
    """
    if cost is None:
        return None
    if len(times_us) < _SPREADS:
        counted = "nothing was timed by itself" if not times_us else f"{len(times_us)} {each}"
        return replace(cost, no_spread=counted + "s" * (len(times_us) > 1))
    first, middle, third = quantiles(times_us, n=4, method="inclusive")
    return replace(cost, spread_us=third - first, median_us=middle, each=each)


def enough_steps(evidence: Evidence) -> bool:
    """Return whether there were steps beyond a warm-up."""
    return evidence.steps_seen >= ENOUGH_STEPS


def times(count: float) -> str:
    """Return a count as people say it: "once", "twice", "12 times", "0.5 times"."""
    if abs(count - 1) < 0.05:
        return "once"
    if abs(count - 2) < 0.05:
        return "twice"
    return f"{count:.0f} times" if count >= 9.5 or count == int(count) else f"{count:.1f} times"


def percent(share: float) -> str:
    """Return a share as "41%", or "0.4%" where it is small."""
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def cost_words(cost: Cost | None) -> str:
    """Return a cost in one line, as the report prints it."""
    if cost is None:
        return ""
    parts = []
    if cost.us_per_step is not None:
        parts.append(f"{format_us(cost.us_per_step)} a {cost.per}")
    if cost.share is not None:
        whole = cost.per if cost.per in ("step", "token", "request") else "time watched"
        share = f"{percent(cost.share)} of the {whole}"
        parts.append(f"({share})" if parts else share)
    words = " ".join(parts)
    words += ", part of it beside the steps" if cost.beside else ""
    words += f"; {cost.kind}"
    if cost.steps:
        words += f", {cost.steps} {cost.per}s"
    return words


def spread_words(cost: Cost) -> str:
    """Return how much a cost varies, or why that is not known."""
    if cost.spread_us is None:
        return f"no spread: {cost.no_spread}" if cost.no_spread else ""
    of = f"each {cost.each}: " if cost.each else ""
    middle = "" if cost.median_us is None else f"median {format_us(cost.median_us)}, "
    return f"{of}{middle}IQR {format_us(cost.spread_us)}"
