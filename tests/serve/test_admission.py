"""Retry-After: when the queue will have room, from how fast it was seen to move."""

from __future__ import annotations

from math import ceil

import pytest

from ostinato.serve.admission import DrainRate, Load, Queue

FULL = Queue(Load(100, 10_000), Load(100, 1_000_000))
ONE = Load(1, 100)


def measured(requests_per_s: float, tokens_per_s: float = 1e9) -> DrainRate:
    rate = DrainRate()
    for second in range(5):
        left = Load(second * requests_per_s, second * tokens_per_s)
        rate.note(float(second), left, is_empty=False)
    return rate


def test_the_rate_is_what_left_by_the_time_it_took() -> None:
    assert measured(20).per_second() == Load(20, 1e9)


def test_whoever_is_refused_is_told_when_one_place_is_free() -> None:
    assert measured(0.25).retry_s(4.0, FULL, ONE) == pytest.approx(4.0)


def test_nobody_is_told_less_than_a_second() -> None:
    assert measured(1000).retry_s(4.0, FULL, ONE) == 1.0


def test_those_refused_before_come_first() -> None:
    rate = measured(2)
    waits = [rate.retry_s(4.0, FULL, ONE) for _ in range(20)]
    assert waits[-1] == pytest.approx(10.0)
    assert waits == sorted(waits)


def test_promises_are_kept_as_time_goes_by() -> None:
    rate = measured(2)
    for _ in range(20):
        rate.retry_s(4.0, FULL, ONE)
    assert rate.retry_s(14.0, FULL, ONE) == 1.0  # the twenty have had their turn


def test_a_long_prompt_waits_for_room_for_its_tokens() -> None:
    queue = Queue(Load(10, 900), Load(100, 1000))
    assert measured(50, tokens_per_s=10).retry_s(4.0, queue, Load(1, 200)) == pytest.approx(10.0)


def test_an_empty_queue_measures_nothing() -> None:
    rate = measured(20)
    rate.note(6.0, Load(200, 0), is_empty=True)
    assert rate.per_second() is None
    assert rate.retry_s(6.0, FULL, ONE) == pytest.approx(5.01)


def test_what_was_measured_long_ago_is_forgotten() -> None:
    rate = DrainRate()
    rate.note(0.0, Load(0, 0), is_empty=False)
    rate.note(100.0, Load(1000, 0), is_empty=False)
    rate.note(101.0, Load(1002, 0), is_empty=False)
    assert rate.per_second() == Load(2, 0)


def test_a_queue_that_does_not_move_promises_no_moment() -> None:
    assert measured(0).retry_s(4.0, FULL, ONE) == pytest.approx(5.01)


def test_no_second_is_promised_to_more_than_the_queue_holds() -> None:
    rate, small = measured(100), Queue(Load(3, 0), Load(3, 1_000_000))
    waits = [ceil(rate.retry_s(4.0, small, ONE)) for _ in range(9)]
    assert waits == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_nor_is_it_before_the_rate_is_known() -> None:
    rate, small = DrainRate(), Queue(Load(3, 0), Load(3, 1_000_000))
    waits = [ceil(rate.retry_s(4.0, small, ONE)) for _ in range(6)]
    assert waits == [6, 6, 6, 7, 7, 7]
