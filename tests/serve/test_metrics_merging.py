"""Merging: a scrape is the sum over all processes, whoever answers it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ostinato import instruments
from ostinato.instruments import RanEagerly, Replayed
from ostinato.llm.standing import Health
from ostinato.serve.metrics import Metrics, add_up, merge, retire
from ostinato.serve.slo import State
from serve.watched import Standing, counts


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def front(name: str, requests: int) -> Metrics:
    metrics = Metrics(name)
    for _ in range(requests):
        metrics.request_began("chat")
        metrics.first_token(0.01)
        metrics.request_ended("stop", 0.2, 0.001)
    return metrics


CHAT = (("kind", "chat"),)
SHORT = (("length_class", "short"),)


def test_counters_and_histograms_are_summed() -> None:
    merged = values(merge([front("front-0", 3).snapshot(), front("front-1", 4).snapshot()]))
    assert merged["ostinato_requests_total", CHAT] == 7
    bucket = ("ostinato_time_to_first_token_seconds_bucket", (("le", "0.01"), *SHORT))
    assert merged[bucket] == 7
    assert merged["ostinato_time_to_first_token_seconds_count", SHORT] == 7
    assert merged["ostinato_time_to_first_token_seconds_sum", SHORT] == pytest.approx(0.07)


def test_requests_in_flight_are_summed() -> None:
    one, two = Metrics("front-0"), Metrics("front-1")
    one.request_began("chat")
    two.request_began("completions")
    assert values(merge([one.snapshot(), two.snapshot()]))["ostinato_requests_in_flight", ()] == 2


def test_the_breaker_that_sheds_most_is_the_one_that_is_told() -> None:
    one, two = Metrics("front-0"), Metrics("front-1")
    one.breaker(State.OPEN, 3)
    two.breaker(State.RECOVERING, 1)
    merged = values(merge([one.snapshot(), two.snapshot()]))
    assert merged["ostinato_breaker_state", ()] == 2
    assert merged["ostinato_breaker_rung", ()] == 3


def test_one_broken_engine_is_not_hidden_by_another_that_works() -> None:
    well, ill = Metrics("engine-0"), Metrics("engine-1")
    well.watch_engine(Standing())
    ill.watch_engine(
        Standing(
            stands=Health(False, "gone", is_taking=False, idle_s=9, living=True, is_warm=False)
        )
    )
    merged = values(merge([ill.snapshot(), well.snapshot()]))
    assert merged["ostinato_engine_up", ()] == 0
    assert merged["ostinato_engine_idle_seconds", ()] == 9
    assert merged["ostinato_engine_waiting_requests", ()] == 6


def test_a_share_is_computed_from_the_sums_and_never_summed() -> None:
    one, two = Metrics("engine-0"), Metrics("engine-1")
    for metrics, replays, eager in ((one, 9, 1), (two, 0, 10)):
        instrument = metrics.watch_graphs()
        for _ in range(replays):
            instruments.emit(Replayed("step", "step#1", 0))
        for _ in range(eager):
            instruments.emit(RanEagerly("step", "host-sync", None))
        instruments.remove(instrument)
    merged = values(merge([one.snapshot(), two.snapshot()]))
    assert merged["graph_reuse_rate", ()] == pytest.approx(9 / 20)


def test_a_share_of_nothing_is_zero() -> None:
    metrics = Metrics("engine")
    instruments.remove(metrics.watch_graphs())
    assert values(merge([metrics.snapshot()]))["graph_reuse_rate", ()] == 0


def test_processes_keep_their_own_memory_and_waits() -> None:
    one, two = Metrics("front-0"), Metrics("front-1")
    one.loop_lag(0.5)
    merged = values(merge([one.snapshot(), two.snapshot()]))
    assert merged["ostinato_event_loop_lag_seconds_count", (("process", "front-0"),)] == 1
    assert merged["ostinato_event_loop_lag_seconds_count", (("process", "front-1"),)] == 0
    assert ("process_resident_memory_bytes", (("process", "front-1"),)) in merged


def test_counts_of_a_process_that_ended_stay_and_its_state_goes() -> None:
    dead, living = front("front-0", 5), front("front-1", 2)
    dead.request_began("chat")  # in flight when it was killed
    kept = retire([dead.snapshot()])
    merged = values(merge([kept, living.snapshot()]))
    assert merged["ostinato_requests_total", CHAT] == 8
    assert merged["ostinato_requests_in_flight", ()] == 0


def test_an_engine_started_anew_goes_on_counting_where_the_old_one_ended() -> None:
    old, new = Metrics("engine"), Metrics("engine")
    old.watch_engine(Standing(counted=counts(steps=30)))
    new.watch_engine(Standing(counted=counts(steps=2)))
    before = values(merge([old.snapshot()]))["ostinato_engine_steps_total", ()]
    after = values(merge([retire([old.snapshot()]), new.snapshot()]))
    assert before == 30
    assert after["ostinato_engine_steps_total", ()] == 32
    assert after["ostinato_engine_waiting_requests", ()] == 3


def test_times_of_creation_are_left_out() -> None:
    assert "_created" not in merge([front("front-0", 1).snapshot()])


def test_a_label_with_quotes_and_line_ends_survives() -> None:
    metrics = Metrics("front-0")
    metrics.model('a "model"\\with\nall', "v1")
    merged = values(merge([metrics.snapshot()]))
    labels = (("model", 'a "model"\\with\nall'), ("version", "v1"))
    assert merged["ostinato_model_info", labels] == 1


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 100), max_size=5), min_size=1, max_size=4))
def test_the_order_of_the_processes_and_of_retiring_does_not_matter(
    latencies: list[list[float]],
) -> None:
    snapshots = []
    for number, seen in enumerate(latencies):
        metrics = Metrics(f"front-{number}")
        for seconds in seen:
            metrics.tokens(1, seconds)
        snapshots.append(metrics.snapshot())
    name = "ostinato_inter_token_latency_seconds"

    def tally(merging: list[bytes]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        family = next(each for each in add_up(merging) if each.name == name)
        return {(sample.name, sample.labels): sample.value for sample in family.samples}

    plain = tally(snapshots)
    assert tally(snapshots[::-1]) == pytest.approx(plain)
    one_by_one = snapshots[0]
    for snapshot in snapshots[1:]:
        one_by_one = retire([one_by_one, snapshot])
    assert tally([one_by_one]) == pytest.approx(plain)
    assert plain[f"{name}_count", SHORT] == sum(map(len, latencies))
