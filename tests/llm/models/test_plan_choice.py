"""The fastest plan is chosen by medians, and noise chooses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("triton")

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import LIBRARY, LayerPlan, LayerPlans
from ostinato.llm.models.plan_choice import ORDER, fastest, is_faster, merged
from ostinato.measure import Spread

TILE = TilePlan(32, 64, 4, 3)
WIDE = TilePlan(64, 64, 4, 3)
TILED = LayerPlan(TILE, TILE, TILE, TILE)
FEW = LayerPlan(*(FewPlan(1, 64, 1),) * 4)


def steady(us: float, iqr: float = 0.0) -> Spread:
    return Spread(us, iqr, 5)


@pytest.mark.parametrize(
    ("trial", "best", "wins"),
    [
        (steady(98.0), steady(100.0), True),
        (steady(99.5), steady(100.0), False),
        (steady(101.0), steady(100.0), False),
        (steady(96.0, 5.0), steady(100.0), False),
        (steady(96.0), steady(100.0, 5.0), False),
        (steady(94.0, 5.0), steady(100.0, 5.0), True),
    ],
)
def test_only_what_noise_does_not_explain_is_faster(
    trial: Spread, best: Spread, wins: bool
) -> None:
    assert is_faster(trial, best) is wins


class Clock:
    """Times plans by what each product costs; a plan without a price cannot run."""

    def __init__(self, prices: Mapping[Any, float]) -> None:
        self.prices = prices
        self.timed: list[LayerPlan] = []

    def __call__(self, plan: LayerPlan) -> Spread | None:
        self.timed.append(plan)
        parts = [self.prices.get((name, getattr(plan, name))) for name in ORDER]
        return None if None in parts else steady(sum(part for part in parts if part is not None))


def trials(**more: Any) -> dict[str, Any]:
    return dict.fromkeys(ORDER, ()) | more


def never() -> bool:
    return False


PRICES = {(name, TILE): 25.0 for name in ORDER}


def test_each_product_gets_what_is_fastest_for_it() -> None:
    clock = Clock(PRICES | {("down", None): 5.0, ("down", WIDE): 9.0, ("qkv", WIDE): 40.0})
    asked = trials(down=(WIDE, None, TILE), qkv=(WIDE,))
    assert fastest(TILED, asked, clock, never) == replace(TILED, down=None)


def test_what_cannot_run_or_is_wrong_is_never_chosen() -> None:
    clock = Clock(PRICES)
    assert fastest(TILED, trials(out=(WIDE, None)), clock, never) == TILED


def test_where_the_first_plan_cannot_run_any_that_can_is_better() -> None:
    clock = Clock({(name, TILE): 25.0 for name in ORDER if name != "out"} | {("out", WIDE): 99.0})
    assert fastest(TILED, trials(out=(WIDE,)), clock, never) == replace(TILED, out=WIDE)
    assert fastest(TILED, trials(), clock, never) is None


def test_the_one_that_would_lose_runs_once_more_for_clocks_drift() -> None:
    slow_first = iter((100.0, 90.0, 80.0))

    def drifting(plan: LayerPlan) -> Spread:
        return steady(next(slow_first))

    # 100 for the first, 90 for the trial, and then 80 for the first again.
    assert fastest(TILED, trials(out=(WIDE,)), drifting, never) == TILED


def test_a_search_that_time_cut_short_decides_nothing() -> None:
    clock = Clock(PRICES | {("gate_up", WIDE): 1.0, ("down", WIDE): 1.0})
    left = iter((False, True))
    found = fastest(TILED, trials(gate_up=(WIDE,), down=(WIDE,)), clock, lambda: next(left))
    assert found is None
    assert replace(TILED, gate_up=WIDE, down=WIDE) not in clock.timed


COUNTS = (1, 2, 4, 8)
BEFORE = LayerPlans((1, 512), (FEW, TILED, LIBRARY))


def test_what_was_found_serves_up_to_its_number_and_the_rest_stays() -> None:
    other = replace(TILED, out=WIDE)
    plans = merged({4: other}, COUNTS, BEFORE)
    served = {tokens: plans.fit(tokens) for tokens in (1, 2, 3, 4, 5, 512, 513)}
    assert served == {1: FEW, 2: TILED, 3: other, 4: other, 5: TILED, 512: TILED, 513: LIBRARY}
    assert plans.measured == (4,)


def test_more_tokens_than_are_measured_are_served_as_before() -> None:
    plans = merged({8: FEW}, COUNTS, LayerPlans((), (LIBRARY,)))
    assert [plans.fit(tokens) for tokens in (4, 5, 8, 9, 2048)] == [
        LIBRARY,
        FEW,
        FEW,
        LIBRARY,
        LIBRARY,
    ]


def test_neighbours_that_are_served_alike_are_one() -> None:
    plans = merged(dict.fromkeys(COUNTS, TILED), COUNTS, BEFORE)
    assert (plans.up_to, plans.plans) == ((512,), (TILED, LIBRARY))
    assert merged({1: FEW}, COUNTS, BEFORE).up_to == BEFORE.up_to


def test_what_was_measured_before_is_not_forgotten() -> None:
    first = merged({1: FEW}, COUNTS, BEFORE)
    assert merged({8: TILED}, COUNTS, first).measured == (1, 8)
