"""Stretches of time: their union, in bounded memory."""

from __future__ import annotations

import random

import pytest

from ostinato.doctor.trace.intervals import Intervals


def test_overlaps_count_once_and_order_does_not_matter() -> None:
    stretches = [(0.0, 4.0), (2.0, 6.0), (10.0, 12.0), (3.0, 5.0), (12.0, 13.0)]
    for _ in range(5):
        random.shuffle(stretches)
        covered = Intervals()
        for begin, end in stretches:
            covered.add(begin, end)
        assert covered.length() == 9.0
        assert covered.length(5.0, 11.0) == 2.0


def test_nothing_covers_nothing() -> None:
    assert Intervals().length() == 0.0


@pytest.mark.parametrize("count", [10, 1000])
def test_a_bound_on_memory_blurs_the_narrowest_gaps_and_says_by_how_much(count: int) -> None:
    covered = Intervals(most=50)
    for index in range(count):
        begin = index * 10.0 + (5.0 if index % 2 else 0.0)  # gaps of 13 and 3 by turns
        covered.add(begin, begin + 2.0)
    assert len(covered._begins) <= 100
    assert covered.length() == pytest.approx(2.0 * count + covered.blurred_us)
    assert (covered.blurred_us > 0) == (count > 100)


def test_many_that_touch_stay_exact() -> None:
    covered = Intervals(most=10)
    for index in range(10_000):
        covered.add(float(index), index + 1.0)
    assert (covered.length(), covered.blurred_us) == (10_000.0, 0.0)
