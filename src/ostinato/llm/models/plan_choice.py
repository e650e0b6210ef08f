"""Which of a few plans is fastest, decided by medians; what noise may explain decides nothing.

Pure: whoever measures passes in what times a plan (`measuring.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ostinato.llm.models.fused_plans import LayerPlan, LayerPlans

if TYPE_CHECKING:
    from ostinato.llm.models.fused_plans import Plan
    from ostinato.measure import Spread

ORDER = ("gate_up", "down", "qkv", "out")
"""The products of a layer, the largest first: what is decided later is timed beside it."""
_GAIN = 0.01


def is_faster(trial: Spread, best: Spread) -> bool:
    """Return whether a trial is faster by more than a hundredth, and than either lies apart."""
    margin = max(_GAIN * best.median_us, best.iqr_us, trial.iqr_us)
    return trial.median_us < best.median_us - margin


def fastest(
    start: LayerPlan,
    trials: Mapping[str, Sequence[Plan]],
    time: Callable[[LayerPlan], Spread | None],
    is_over: Callable[[], bool],
) -> LayerPlan | None:
    """Return the fastest plan that was found, product by product; None if time ran out before.

    Args:
        trials: What may compute each product, by its name.
        time: Times a plan; None if it cannot run, or gives something else.
        is_over: Whether nothing more may begin.
    """
    plan, best = start, time(start)
    for name in ORDER:
        for each in trials[name]:
            trial = replace(plan, **{name: each})
            if trial == plan:
                continue
            if is_over():
                return None
            taken = time(trial)
            if taken is None:
                continue
            if best is not None and is_faster(taken, best):
                # A machine's clock drifts: the one that would lose runs once more.
                best = time(plan)
            if best is None or is_faster(taken, best):
                plan, best = trial, taken
    return None if best is None else plan


def merged(best: Mapping[int, LayerPlan], counts: Sequence[int], before: LayerPlans) -> LayerPlans:
    """Return plans with what was found for some numbers of tokens put in.

    Args:
        best: By the number of tokens; each serves from above the next smaller of `counts` on.
        counts: Every number of tokens that is measured, sooner or later.
        before: What serves the others, and more tokens than any of them.
    """
    ends = sorted({*counts, *before.up_to})
    found = [_plan_at(end, best, counts, before) for end in ends] + [before.plans[-1]]
    changes = [at for at, (one, other) in enumerate(pairwise(found)) if one != other]
    return LayerPlans(
        tuple(ends[at] for at in changes),
        (*(found[at] for at in changes), found[-1]),
        measured=tuple(sorted({*best, *before.measured})),
    )


def _plan_at(
    tokens: int, best: Mapping[int, LayerPlan], counts: Sequence[int], before: LayerPlans
) -> LayerPlan:
    above = min((count for count in counts if count >= tokens), default=None)
    if above is None or above not in best:
        return before.fit(tokens)
    return best[above]
