"""Prometheus: exactly these metrics, and what each one says."""

import pytest
from prometheus_client import CollectorRegistry

from ostinato.instruments import Captured, Dropped, Listeners, RanEagerly, Replayed
from ostinato.prometheus import PrometheusInstrument


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listeners(registry: CollectorRegistry) -> Listeners:
    listeners = Listeners()
    listeners.add(PrometheusInstrument(registry))
    return listeners


def captured(
    graph_id: str = "f#1", *, recapture: bool = False, answered_call: bool = True
) -> Captured:
    return Captured("f", graph_id, 0.2, 100, 3, recapture, answered_call)


def test_the_metrics_have_exactly_these_names_and_kinds(
    registry: CollectorRegistry, listeners: Listeners
) -> None:
    assert {(family.name, family.type) for family in registry.collect()} == {
        ("graph_build_duration_seconds", "histogram"),
        ("graph_reuse_rate", "gauge"),
        ("graph_recapture_count", "counter"),  # the exporter writes a counter's name with _total
        ("graph_calls", "counter"),
        ("graph_bytes", "gauge"),
        ("graph_evictions", "counter"),
    }
    assert registry.get_sample_value("graph_recapture_count_total") == 0
    assert registry.get_sample_value("graph_evictions_total") == 0


def test_calls_are_counted_by_outcome_and_reason(
    registry: CollectorRegistry, listeners: Listeners
) -> None:
    listeners.emit(Replayed("f", "f#1", padded_rows=0))
    listeners.emit(RanEagerly("f", "host-sync", None))
    listeners.emit(RanEagerly("f", "host-sync", None))

    def calls(outcome: str, reason: str) -> float | None:
        labels = {"outcome": outcome, "reason": reason}
        return registry.get_sample_value("graph_calls_total", labels)

    assert calls("replayed", "") == 1
    assert calls("eager", "host-sync") == 2
    listeners.emit(captured())
    listeners.emit(captured(answered_call=False))
    assert calls("recorded", "") == 1


def test_the_reuse_rate_is_the_share_of_calls_that_were_replayed(
    registry: CollectorRegistry, listeners: Listeners
) -> None:
    assert registry.get_sample_value("graph_reuse_rate") == 0
    listeners.emit(RanEagerly("f", "not-admitted-yet", None))
    listeners.emit(captured())
    for _ in range(6):
        listeners.emit(Replayed("f", "f#1", padded_rows=0))
    assert registry.get_sample_value("graph_reuse_rate") == 0.75


def test_a_recording_adds_its_seconds_and_bytes_and_only_a_second_one_is_a_recapture(
    registry: CollectorRegistry, listeners: Listeners
) -> None:
    listeners.emit(captured())
    assert registry.get_sample_value("graph_recapture_count_total") == 0
    listeners.emit(captured(recapture=True))
    assert registry.get_sample_value("graph_recapture_count_total") == 1
    assert registry.get_sample_value("graph_build_duration_seconds_count") == 2
    assert registry.get_sample_value("graph_build_duration_seconds_sum") == pytest.approx(0.4)
    assert registry.get_sample_value("graph_bytes") == 200


def test_a_dropped_recording_gives_its_bytes_back_and_is_an_eviction_only_for_want_of_room(
    registry: CollectorRegistry, listeners: Listeners
) -> None:
    listeners.emit(captured("f#1"))
    listeners.emit(captured("f#2"))
    listeners.emit(Dropped("f", "f#1", "weights-moved", bytes=100))
    assert registry.get_sample_value("graph_evictions_total") == 0
    listeners.emit(Dropped("f", "f#2", "over-budget", bytes=100))
    assert registry.get_sample_value("graph_evictions_total") == 1
    assert registry.get_sample_value("graph_bytes") == 0


def test_two_instruments_count_in_registries_of_their_own(listeners: Listeners) -> None:
    other = CollectorRegistry()
    listeners.add(PrometheusInstrument(other))
    listeners.emit(captured())
    assert other.get_sample_value("graph_bytes") == 100
