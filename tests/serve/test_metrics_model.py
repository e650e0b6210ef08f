"""A callable's metrics: its queue and batches as it counts them, its calls as they happen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ostinato import instruments
from ostinato.instruments import Captured, RanEagerly, Replayed
from ostinato.serve.metrics import Metrics
from ostinato.serve.metrics.merging import Family, add_up
from ostinato.serve.metrics.model import ModelCalls
from serve.watched import model_numbers


class Model:
    """What runs now."""

    rows = 0


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("callable")


@pytest.fixture
def calls(metrics: Metrics) -> Iterator[ModelCalls]:
    heard = metrics.watch_model("encoder", model_numbers, lambda: Model.rows)
    yield heard
    instruments.remove(heard)
    Model.rows = 0


def told(metrics: Metrics) -> dict[str, Family]:
    return {family.name: family for family in add_up([metrics.snapshot()])}


@pytest.mark.usefixtures("calls")
def test_what_the_batcher_counts_is_told_under_the_model_s_name(metrics: Metrics) -> None:
    families = told(metrics)
    expected = {
        "waiting_requests": 2,
        "running_requests": 1,
        "batches": 5,
        "rows": 11,
        "padded_rows": 5,
        "busy_seconds": 0.75,
    }
    for name, value in expected.items():
        assert families[f"ostinato_model_{name}"].value(model="encoder") == value, name
    answers = families["ostinato_model_answers"]
    outcomes = {"answered": 9, "failed": 1, "late": 1, "refused": 3}
    assert {
        outcome: answers.value(model="encoder", outcome=outcome) for outcome in outcomes
    } == outcomes


@pytest.mark.usefixtures("calls")
def test_each_call_counts_once_with_its_outcome_and_reason(metrics: Metrics) -> None:
    instruments.emit(Captured("step", "a", 0.1, 10, 3, recapture=False, answered_call=True))
    instruments.emit(Captured("step", "b", 0.1, 10, 3, recapture=False, answered_call=False))
    instruments.emit(Replayed("step", "a", 0))
    instruments.emit(Replayed("step", "a", 0))
    instruments.emit(RanEagerly("step", "host-sync", None))
    counted = told(metrics)["ostinato_model_calls"]
    for outcome, reason, value in (
        ("recorded", "", 1),
        ("replayed", "", 2),
        ("eager", "host-sync", 1),
    ):
        assert counted.value(model="encoder", outcome=outcome, reason=reason) == value


@pytest.mark.usefixtures("calls")
def test_a_replay_counts_the_rows_of_its_recording_and_warming_does_not(metrics: Metrics) -> None:
    instruments.emit(Replayed("step", "a", 1))  # warmed: nobody asked
    Model.rows = 3
    instruments.emit(Replayed("step", "a", 1))
    families = told(metrics)
    for name, value in (("steps", 1), ("rows", 4), ("padding", 1)):
        assert families[f"graph_bucket_{name}"].value(bucket="4") == value
    assert len([s for s in families["graph_bucket_steps"].samples if s.value]) == 1
