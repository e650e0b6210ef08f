"""Batching: what runs next, who is too late, and until when to wait. No clock, no model."""

import pytest

from ostinato.errors import UsageError
from ostinato.serve.callable.batching import Limits, Plan, Waiting, plan

LIMITS = Limits(max_batch=4, max_delay_s=1.0)


def ask(
    ticket: int,
    arrived_s: float = 0.0,
    *,
    rows: int = 1,
    kind: str = "a",
    priority: int = 0,
    deadline_s: float | None = None,
) -> Waiting:
    return Waiting(ticket, kind, rows, arrived_s, priority, deadline_s)


def test_nothing_waits_for_the_next_arrival() -> None:
    assert plan([], LIMITS, 0.0) == Plan()


def test_a_lone_request_waits_for_company_until_its_delay_is_over() -> None:
    assert plan([ask(0)], LIMITS, 0.5) == Plan(wake_s=1.0)
    assert plan([ask(0)], LIMITS, 1.0) == Plan(run=(0,))


def test_a_full_batch_runs_at_once() -> None:
    assert plan([ask(0, rows=3), ask(1, rows=1)], LIMITS, 0.0).run == (0, 1)


def test_no_delay_means_no_waiting() -> None:
    assert plan([ask(0)], Limits(max_delay_s=0.0), 0.0).run == (0,)


def test_the_rest_waits_for_the_next_batch() -> None:
    assert plan([ask(n) for n in range(6)], LIMITS, 0.0).run == (0, 1, 2, 3)


def test_requests_share_a_batch_only_as_far_as_it_is_to_be_filled() -> None:
    limits = Limits(max_batch=8, max_delay_s=1.0, fill_to=2)
    assert plan([ask(n) for n in range(3)], limits, 0.0).run == (0, 1)
    assert plan([ask(0, rows=5), ask(1)], limits, 0.0).run == (0,)  # large by itself
    assert plan([ask(0)], limits, 0.5) == Plan(wake_s=1.0)
    assert Limits(max_batch=4, fill_to=16).full == 4


def test_only_requests_of_one_kind_share_a_batch() -> None:
    waiting = [ask(0, kind="a"), ask(1, kind="b"), ask(2, kind="a")]
    assert plan(waiting, LIMITS, 1.0).run == (0, 2)


def test_a_kind_that_is_full_does_not_wait_for_one_that_is_not() -> None:
    waiting = [ask(0, kind="b"), *(ask(n, 0.1, kind="a") for n in range(1, 5))]
    assert plan(waiting, LIMITS, 0.2).run == (1, 2, 3, 4)


def test_the_smaller_priority_goes_first_then_the_earlier() -> None:
    waiting = [ask(0), ask(1, priority=-1), ask(2), ask(3, priority=5), ask(4, priority=-1)]
    assert plan(waiting, LIMITS, 1.0).run == (1, 4, 0, 2)


def test_among_ripe_kinds_the_most_urgent_request_decides() -> None:
    waiting = [ask(0, kind="a"), ask(1, kind="b", priority=-1)]
    assert plan(waiting, LIMITS, 1.0).run == (1,)


def test_a_request_that_does_not_fit_lets_a_smaller_one_pass_and_leads_the_next() -> None:
    waiting = [ask(0, rows=3), ask(1, rows=2), ask(2, rows=1)]
    assert plan(waiting, LIMITS, 0.0).run == (0, 2)
    assert plan([ask(1, rows=2), ask(3), ask(4), ask(5)], LIMITS, 0.0).run[0] == 1


def test_who_is_late_is_told_and_never_runs() -> None:
    waiting = [ask(0, deadline_s=0.5), ask(1)]
    assert plan(waiting, LIMITS, 0.5) == Plan(late=(0,), wake_s=1.0)
    assert plan(waiting, LIMITS, 1.0) == Plan(run=(1,), late=(0,))


def test_it_wakes_for_the_first_deadline_too() -> None:
    assert plan([ask(0, deadline_s=0.3), ask(1)], LIMITS, 0.0).wake_s == 0.3


def test_a_late_request_does_not_make_a_batch_ripe() -> None:
    waiting = [ask(0, 0.0, deadline_s=0.9), ask(1, 0.8)]
    assert plan(waiting, LIMITS, 1.0) == Plan(late=(0,), wake_s=1.8)


@pytest.mark.parametrize(
    "values", [{"max_batch": 0}, {"max_delay_s": -1.0}, {"max_delay_s": float("nan")},
               {"max_waiting": 0}, {"max_delay_s": float("inf")}],
)  # fmt: skip
def test_limits_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(UsageError) as caught:
        Limits(**values)  # type: ignore[arg-type]
    assert caught.value.code == "OST6059"
