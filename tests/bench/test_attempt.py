"""Attempts and deadlines: what fails or comes too late is told, not raised."""

import pytest

from ostinato.bench.attempt import Attempt, Deadline, error_text


def test_an_attempt_has_the_value_or_the_error() -> None:
    good, bad = Attempt(lambda: 3), Attempt(lambda: 1 // 0)
    assert (good.value, good.error) == (3, "")
    assert bad.value is None
    assert bad.error.startswith("ZeroDivisionError: ")


def test_ctrl_c_is_no_failed_attempt() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Attempt(interrupted)


def test_an_error_is_told_on_one_line_of_bounded_length() -> None:
    assert error_text(ValueError("two\n  lines")) == "ValueError: two lines"
    assert error_text(ValueError()) == "ValueError"
    assert len(error_text(ValueError("x" * 5000))) < 400


def test_a_deadline_refuses_once_its_budget_is_spent() -> None:
    now = [100.0]
    deadline = Deadline(60, clock=lambda: now[0])
    assert deadline.refusal == ""
    now[0] = 160.0
    assert deadline.refusal == "not run: the budget of 60 s was spent"
    assert deadline.spent_s == 60


def test_without_a_budget_there_is_no_deadline() -> None:
    now = [0.0]
    deadline = Deadline(None, clock=lambda: now[0])
    now[0] = 1e9
    assert deadline.refusal == ""
