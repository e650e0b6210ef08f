"""How many engines there should be: pure, no Ray."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ostinato.serve.ray.scaling import Demand, by_queue, demand_of, wanted


@pytest.mark.parametrize(
    ("demand", "engines"),
    [
        (Demand(2, 0, 100, 200), 2),  # busy, and nothing waits
        (Demand(2, 0, 200, 200), 2),  # all rows busy: still nothing waits
        (Demand(2, 5, 200, 200), 2),  # a little waits
        (Demand(2, 17, 200, 200), 3),  # more than an engine's rows can soon take
        (Demand(2, 500, 200, 200), 7),  # as many as hold it all
        (Demand(2, 17, 10, 200), 3),  # work waits although rows are free: pages are short
        (Demand(4, 0, 100, 400), 2),  # two engines at 50 of 100 rows, not one at 100
        (Demand(4, 0, 0, 400), 1),
        (Demand(4, 1, 0, 400), 4),  # not fewer while anything waits
        (Demand(0, 3, 0, 0), 1),
        (Demand(0, 0, 0, 0), 0),
        (Demand(2, 50, 0, 0), 2),  # nobody has told yet
    ],
)
def test_engines_follow_the_work_that_waits(demand: Demand, engines: int) -> None:
    assert wanted(demand) == engines


def test_fewer_engines_would_not_at_once_be_too_few() -> None:
    for running in range(0, 400, 7):
        fewer = wanted(Demand(4, 0, running, 400))
        assert running <= 0.7 * 100 * fewer or fewer == 4


def test_what_engines_tell_is_added_up_with_what_waits_before_them() -> None:
    told = {"waiting": {"a": 1.0, "b": 2.0}, "running": {"a": 5.0}, "rows": {"a": 8.0, "b": 8.0}}
    assert demand_of(2, 4.0, told) == Demand(2, 7.0, 5.0, 16.0)


def test_ray_is_answered_with_at_least_one_engine() -> None:
    context = SimpleNamespace(
        current_num_replicas=1,
        total_queued_requests=None,
        aggregated_metrics={"waiting": {"a": 30.0}, "running": {"a": 8.0}, "rows": {"a": 8.0}},
    )
    assert by_queue(context) == (5, {})
    assert by_queue(SimpleNamespace(**(vars(context) | {"aggregated_metrics": None}))) == (1, {})
