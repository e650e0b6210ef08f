"""A cost beside nothing: what rounds of blocks say, and how surely."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from ostinato.bench.paired import (
    FEWEST,
    Interval,
    Standing,
    beyond,
    interval,
    mirrored,
    narrowing,
)


def test_every_kind_lies_as_far_before_the_middle_as_behind_it() -> None:
    for number in range(6):
        order = mirrored("abc", number)
        assert sorted(order) == list("aabbcc")
        assert order == order[::-1]
    assert [mirrored("abc", number)[0] for number in range(4)] == list("abca")


def test_an_even_drift_through_a_round_costs_nothing() -> None:
    for number in range(3):
        drift = {
            kind: [1 + 0.1 * at for at, each in enumerate(mirrored("abc", number)) if each == kind]
            for kind in "abc"
        }
        assert beyond(drift["b"], drift["a"]) == pytest.approx(0)
        assert beyond([1.03 * each for each in drift["b"]], drift["a"]) == pytest.approx(0.03)


def rounds(count: int, middle: float, apart: float, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(middle, apart) for _ in range(count)]


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = 0
    for seed in range(100):
        found = interval(rounds(25, 0.02, 0.05, seed))
        held += found.low <= 0.02 <= found.high
    assert 88 <= held <= 100


def test_an_interval_narrows_with_the_root_of_the_rounds() -> None:
    few, many = (
        fmean(interval(rounds(count, 0.02, 0.05, seed)).width for seed in range(15))
        for count in (25, 225)
    )
    assert few / many == pytest.approx(3, rel=0.25)


def test_one_wild_round_moves_the_middle_little() -> None:
    calm = rounds(25, 0.02, 0.01)
    assert abs(interval([*calm, 5.0]).middle - interval(calm).middle) < 0.005


def test_the_same_rounds_say_the_same() -> None:
    values = rounds(12, 0.0, 0.1)
    assert interval(values) == interval(values)


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (Interval(0.01, 0.0, 0.03, 20), Standing.BORNE_OUT),
        (Interval(0.01, 0.0, 0.031, 20), Standing.OPEN),
        (Interval(0.05, 0.03, 0.07, 20), Standing.OPEN),
        (Interval(0.05, 0.031, 0.07, 20), Standing.REFUTED),
        (Interval(0.01, 0.0, 0.02, FEWEST - 1), Standing.OPEN),
        (Interval(0.05, 0.04, 0.07, FEWEST - 1), Standing.OPEN),
    ],
)
def test_the_interval_and_not_the_middle_settles_a_claim(
    found: Interval, standing: Standing
) -> None:
    assert found.standing(0.03) is standing


def test_how_many_rounds_would_settle_it_follows_from_the_width() -> None:
    # The end towards the claim is twice as far as it may be: four times the rounds.
    assert Interval(0.25, 0.0, 0.75, 10).rounds_to_settle(0.5) == 40
    assert Interval(0.75, 0.25, 1.0, 10).rounds_to_settle(0.5) == 40
    assert Interval(0.5, 0.25, 0.75, 10).rounds_to_settle(0.5) is None
    assert Interval(-9.0, -9.5, -8.5, 10).rounds_to_settle(0.5) == FEWEST


def test_the_way_there_is_told_in_doublings() -> None:
    values = rounds(30, 0.02, 0.05)
    assert [each.rounds for each in narrowing(values)] == [6, 12, 24, 30]
    assert narrowing(values)[-1] == interval(values)
    assert [each.rounds for each in narrowing(values[:4])] == [4]
    assert narrowing([]) == []
