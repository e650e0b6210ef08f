"""A seat: what the host knows of a row, and what it takes back when a launch ended early."""

from __future__ import annotations

from ostinato.llm.request import FinishReason
from ostinato.llm.resident_launch import Produced
from ostinato.llm.resident_seat import Seat, settle
from ostinato.llm.sampling import Level


def seat(cached: int, most: int = 100) -> Seat:
    return Seat(cached, most, Level.GREEDY, logprobs=None, is_bound=False)


def test_steps_that_did_not_run_are_taken_back_from_rows_that_go_on() -> None:
    seats = {0: seat(20), 1: seat(30), 2: seat(40)}
    produced = {
        0: Produced((5, 6, 7), None, None),
        1: Produced((5,), FinishReason.STOP, None),
        2: Produced((), None, None),
    }
    settle(seats, {0: 8, 1: 8, 2: 0}, produced)
    assert [seats[row].cached for row in range(3)] == [15, 30, 40]


def test_a_row_never_needs_more_places_than_its_last_token() -> None:
    assert seat(20).needs(8) == 28
    assert seat(95).needs(8) == 100
