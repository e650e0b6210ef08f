"""What a runner tells instruments, and what the Prometheus listener makes of it."""

from collections.abc import Callable

import pytest
import torch
from prometheus_client import CollectorRegistry
from torch import Tensor

from ostinato import instruments
from ostinato.graphs import Buckets, OstinatoWarning, Outcome, graphed
from ostinato.instruments import (
    Captured,
    Dropped,
    Event,
    Instrument,
    RanEagerly,
    Replayed,
    Warned,
)
from ostinato.prometheus import PrometheusInstrument

Listen = Callable[[Instrument], None]


class Notebook(Instrument):
    """Writes every event down."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def captured(self, event: Captured) -> None:
        self.events.append(event)

    def replayed(self, event: Replayed) -> None:
        self.events.append(event)

    def ran_eagerly(self, event: RanEagerly) -> None:
        self.events.append(event)

    def dropped(self, event: Dropped) -> None:
        self.events.append(event)

    def warned(self, event: Warned) -> None:
        self.events.append(event)


def step(x: Tensor) -> Tensor:
    return x * 2


def test_every_outcome_is_told(device: torch.device, listen: Listen) -> None:
    notebook = Notebook()
    listen(notebook)
    runner = graphed(step, buckets={"x": Buckets(dim=0, sizes=(4,))})
    for _ in range(3):
        runner(torch.ones(3, device=device))
    runner.invalidate()
    eager, captured, replayed, dropped = notebook.events
    assert eager == RanEagerly("step", "not-admitted-yet", None)
    assert isinstance(captured, Captured)
    assert (captured.graph_id, captured.recapture, captured.answered_call) == (
        "step#1",
        False,
        True,
    )
    assert captured.seconds > 0
    assert captured.nodes >= 1
    assert replayed == Replayed("step", "step#1", 1)
    assert dropped == Dropped("step", "step#1", "invalidated", captured.bytes)
    runner(torch.ones(3, device=device))
    again = notebook.events[-1]
    assert isinstance(again, Captured)
    assert again.recapture


def test_a_recording_ahead_of_a_call_says_so(device: torch.device, listen: Listen) -> None:
    notebook = Notebook()
    listen(notebook)
    graphed(step).warm(torch.ones(3, device=device))
    (captured,) = notebook.events
    assert isinstance(captured, Captured)
    assert not captured.answered_call


def test_a_warning_is_told(device: torch.device, listen: Listen) -> None:
    notebook = Notebook()
    listen(notebook)
    log: list[int] = []
    runner = graphed(lambda x: log.append(1) or x * 2, admit_after=1)  # type: ignore[func-returns-value]
    with pytest.warns(OstinatoWarning):
        runner(torch.ones(1, device=device))
    warned = [event for event in notebook.events if isinstance(event, Warned)]
    assert [event.code for event in warned] == ["python-side-effect"]
    assert "list" in warned[0].message


def test_a_listener_that_raises_breaks_no_call(device: torch.device, listen: Listen) -> None:
    class Broken(Instrument):
        def replayed(self, event: Replayed) -> None:
            raise RuntimeError("a bug in a listener")

    listen(Broken())
    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(3):
        assert runner(x).tolist() == [2.0, 2.0]
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    assert not instruments.active_for(Replayed)


def test_prometheus_agrees_with_the_report(device: torch.device, listen: Listen) -> None:
    registry = CollectorRegistry()
    listen(PrometheusInstrument(registry))
    runner = graphed(step)

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(name, labels) or 0.0

    for length, calls in ((2, 6), (3, 4), (0, 2)):
        for _ in range(calls):
            runner(torch.ones(length, device=device))
    runner.invalidate()
    for _ in range(2):
        runner(torch.ones(2, device=device))
    report = runner.report()
    assert report.calls == 14
    assert value("graph_reuse_rate") == report.reuse_rate
    assert value("graph_build_duration_seconds_count") == report.recordings == 3
    assert value("graph_build_duration_seconds_sum") > 0
    assert value("graph_recapture_count_total") == report.recaptures == 1
    assert value("graph_bytes") == report.bytes
    assert value("graph_evictions_total") == report.evictions == 0
    assert value("graph_calls_total", outcome="eager", reason="empty-batch") == 2
    outcomes = {
        outcome: sum(
            sample.value
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == "graph_calls_total" and sample.labels["outcome"] == outcome
        )
        for outcome in ("replayed", "recorded", "eager")
    }
    assert outcomes["replayed"] == report.replays
    assert sum(outcomes.values()) == report.calls
    runner.close()
    assert value("graph_bytes") == 0
