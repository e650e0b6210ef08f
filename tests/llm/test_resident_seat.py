"""Seats: what the host knows of the rows, and what it takes back when a launch ended early."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.llm.resident_seat import Counts, Given, Seat, Seats, Wanted
from ostinato.llm.resident_state import Ending
from ostinato.llm.sampling import Level


def seat(
    cached: int,
    most: int = 100,
    *,
    level: Level = Level.GREEDY,
    logprobs: int | None = None,
    is_bound: bool = False,
) -> Seat:
    return Seat(cached, most, level, logprobs, is_bound)


def seats_of(*taken: Seat | None) -> Seats:
    seats = Seats(rows=len(taken), page_tokens=4)
    for row, each in enumerate(taken):
        if each is not None:
            seats.take(row, each)
    return seats


def output(counts: list[int], endings: list[Ending]) -> Counts:
    return np.array([counts, endings], dtype=np.int64).T


def launch(seats: Seats, steps: int, told: tuple[int, ...] = ()) -> Given:
    return seats.give(seats.shares(steps, told))


def test_steps_that_did_not_run_are_taken_back_from_rows_that_go_on() -> None:
    seats = seats_of(seat(20), seat(30), None, seat(40, is_bound=True), seat(50, is_bound=True))
    given = launch(seats, 8, told=(4,))
    assert seats.cached_B.tolist() == [28, 38, 0, 40, 51]
    endings = [Ending.RUNNING, Ending.STOP, Ending.PAUSED, Ending.PAUSED]
    given.settle(seats.company.rows_R, output([3, 1, 0, 0], endings))
    assert seats.cached_B.tolist() == [23, 38, 0, 40, 50]


def test_a_launch_that_ran_all_its_steps_takes_nothing_back() -> None:
    seats = seats_of(seat(20), seat(30))
    launch(seats, 8).settle(np.arange(2), output([8, 8], [Ending.RUNNING] * 2))
    assert seats.cached_B.tolist() == [28, 38]


def test_steps_are_not_taken_back_from_who_has_come_to_the_row_since() -> None:
    seats = seats_of(seat(20), seat(30), seat(40))
    given, rows_R = launch(seats, 8), seats.company.rows_R
    seats.leave(0)
    seats.leave(1)
    seats.take(1, seat(5))
    given.settle(rows_R, output([3, 3, 3], [Ending.RUNNING] * 3))
    assert seats.cached_B.tolist() == [0, 5, 43]


def test_a_row_never_stores_more_than_its_last_token() -> None:
    seats = seats_of(seat(20), seat(95, most=97), None, seat(21))
    assert seats.tokens_after(seats.shares(8, ())).tolist() == [28, 97, 0, 29]
    assert seats.tokens_after(seats.shares(1, ())).tolist() == [21, 96, 0, 22]


def test_pages_that_a_row_was_granted_go_when_it_is_left() -> None:
    seats = seats_of(seat(20), seat(30))
    seats.grant(0, 6)
    seats.grant(1, 9)
    assert (seats.pages_B.tolist(), seats.room_B.tolist()) == ([6, 9], [24, 36])
    seats.leave(0)
    assert (seats.pages_B.tolist(), seats.room_B.tolist()) == ([0, 9], [0, 36])


@pytest.mark.parametrize(("is_bound", "is_free"), [((True, True), False), ((True, False), True)])
def test_company_is_free_if_one_of_it_has_no_grammar(
    is_bound: tuple[bool, bool], is_free: bool
) -> None:
    seats = seats_of(*(seat(20, is_bound=each) for each in is_bound))
    assert seats.company.is_free is is_free


def test_rows_with_a_grammar_run_one_step_if_they_were_told_and_none_if_not() -> None:
    seats = seats_of(seat(20), seat(20, is_bound=True), None, seat(20, is_bound=True))
    assert seats.shares(8, {3: "words"}).tolist() == [8, 0, 0, 1]
    assert [seats.is_bound(row) for row in (-1, 0, 1, 2, 3, 4)] == [
        False, False, True, False, True, False,
    ]  # fmt: skip
    seats.leave(3)
    seats.take(3, seat(20))
    assert seats.shares(2, ()).tolist() == [2, 0, 0, 2]


def test_what_a_launch_asks_for_follows_who_comes_and_goes() -> None:
    seats = seats_of(seat(20), None, None, None)
    assert seats.wanted(5, ()) == Wanted(1, 5, Level.GREEDY, with_logprobs=False)
    seats.take(2, seat(9, level=Level.CUT, logprobs=0))
    assert seats.wanted(0, ()) == Wanted(3, 1, Level.CUT, with_logprobs=True)
    assert (seats.company.rows_R.tolist(), seats.company.asked) == ([0, 2], {2: 0})
    seats.leave(2)
    assert seats.wanted(5, ()) == Wanted(1, 5, Level.GREEDY, with_logprobs=False)
    assert (seats.company.rows_R.tolist(), seats.company.asked) == ([0], {})


@pytest.mark.parametrize("told", [(), (1,)])
def test_a_grammar_asks_for_something_only_when_it_was_told(told: tuple[int, ...]) -> None:
    seats = seats_of(seat(20), seat(9, level=Level.FULL, logprobs=3, is_bound=True))
    level = Level.FULL if told else Level.GREEDY
    assert seats.wanted(1, told) == Wanted(2, 1, level, with_logprobs=bool(told))
    assert seats.company.asked == {1: 3}
