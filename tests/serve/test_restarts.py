"""Whether and how soon a process that ended is started again."""

from __future__ import annotations

from ostinato.serve.restarts import Restarts


def test_the_first_time_it_is_started_again_at_once() -> None:
    assert Restarts().ended(100.0, was_ready=True).wait_s == 0


def test_one_that_keeps_ending_is_started_ever_more_slowly() -> None:
    history, waits = Restarts(), []
    for _ in range(9):
        history = history.ended(1.0, was_ready=True)
        waits.append(history.wait_s)
    assert waits == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert not history.is_hopeless


def test_one_that_lived_long_begins_anew() -> None:
    history = Restarts()
    for _ in range(5):
        history = history.ended(1.0, was_ready=True)
    assert history.ended(60.0, was_ready=True).wait_s == 0


def test_one_that_never_worked_is_given_up_after_three() -> None:
    history = Restarts()
    for _ in range(2):
        history = history.ended(1.0, was_ready=False)
    assert not history.is_hopeless
    assert history.ended(1.0, was_ready=False).is_hopeless
