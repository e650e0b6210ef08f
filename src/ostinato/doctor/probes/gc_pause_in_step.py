"""OST504 gc-pause-in-step.

What it sees: every run of the garbage collector, how long it had a CPU, and whether it fell into a
step.
It counts all runs, though it keeps only the latest of them.
How it decides: after the first steps, three or more inside of steps take 1 ms each and 3 % of all
steps together, or a single one takes 20 ms and half of a step: somebody's slow request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ostinato.doctor.activity import Step
from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.interpreter_use import GcPause, GcUse
from ostinato.doctor.probe import Verdict, cost_in_steps, enough_steps, times, with_spread
from ostinato.units import format_us

RULE = RULES["OST504"]
_WARM_UP = 3  # steps: loading and compiling make garbage of their own
_LEAST_US = 1e3
_SHARE = 0.03
_HABIT = 3
_LONG_US = 20e3
_OF_A_STEP = 0.5


def probe(evidence: Evidence) -> Verdict:
    """Find collections in the middle of steps."""
    step_us = evidence.step_us()
    warm = evidence.steps[_WARM_UP:]
    inside = [p for p in evidence.gc_pauses if p.in_step and _lies_in(p.began_us, warm)]
    if not inside or step_us is None or not enough_steps(evidence):
        return None
    longest = max(inside, key=lambda pause: pause.us)
    use = evidence.gc_use or _use(inside)
    whole_us = (evidence.mean_step_us() or step_us) * evidence.steps_seen
    often = use.long >= _HABIT and use.long_us >= _SHARE * whole_us
    long = longest.us >= max(_LONG_US, _OF_A_STEP * step_us)
    if not often and not long:
        return None
    fact = (
        f"the garbage collector ran {times(use.runs)} in the middle of steps, for up to "
        f"{format_us(longest.us)} (generation {longest.generation})"
    )
    cost = cost_in_steps(evidence, use.us, uneven=True)
    cost = with_spread(cost, [pause.us for pause in inside], "collection")
    return RULE.finding(fact, longest.place, cost)


def _use(inside: Sequence[GcPause]) -> GcUse:
    """Return what an evidence tells that has no count of its own."""
    long = [pause.us for pause in inside if pause.us >= _LEAST_US]
    return GcUse(len(inside), sum(pause.us for pause in inside), len(long), sum(long))


def _lies_in(moment_us: float, steps: Sequence[Step]) -> bool:
    """Whether a moment lies in one of the steps, which are in their order."""
    index = bisect_right(steps, moment_us, key=lambda step: step.began_us) - 1
    return index >= 0 and moment_us <= steps[index].began_us + steps[index].us
