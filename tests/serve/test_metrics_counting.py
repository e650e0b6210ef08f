"""Metrics: what a front end and an engine tell, and where it shows."""

import threading
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ostinato import instruments
from ostinato.instruments import RanEagerly, Replayed
from ostinato.llm.scheduler import Counts
from ostinato.llm.standing import Health
from ostinato.serve.metrics import Aborted, Metrics, Shed
from ostinato.serve.slo import Burn, State
from serve.watched import Standing, counts

Value = Callable[..., float]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("front-0")


def value(metrics: Metrics, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(metrics.text()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise AssertionError(f"no {name} with {labels}")


def test_a_request_is_in_flight_from_its_beginning_to_its_end(metrics: Metrics) -> None:
    metrics.request_began("chat", prompt_tokens=12)
    assert value(metrics, "ostinato_requests_total", kind="chat") == 1
    assert value(metrics, "ostinato_requests_in_flight") == 1
    assert value(metrics, "ostinato_prompt_tokens_total") == 12
    metrics.request_ended("stop", 0.3, 0.0002)
    assert value(metrics, "ostinato_requests_in_flight") == 0
    assert value(metrics, "ostinato_requests_ended_total", kind="chat", reason="stop") == 1
    assert value(metrics, "ostinato_request_duration_seconds_sum", kind="chat") == 0.3
    assert value(metrics, "ostinato_queue_seconds_bucket", le="0.0001") == 0
    assert value(metrics, "ostinato_queue_seconds_bucket", le="0.0002") == 1


def test_a_request_that_never_got_a_row_has_no_time_in_the_queue(metrics: Metrics) -> None:
    metrics.request_began("chat")
    metrics.request_ended("error", 0.3)
    assert value(metrics, "ostinato_queue_seconds_count") == 0


def test_a_block_of_tokens_counts_once_for_each_of_them(metrics: Metrics) -> None:
    metrics.first_token(0.02, "long")
    metrics.tokens(8, 0.004, "long")
    name = "ostinato_inter_token_latency_seconds"
    assert value(metrics, f"{name}_count", length_class="long") == 8
    assert value(metrics, f"{name}_bucket", length_class="long", le="0.0003") == 0
    assert value(metrics, f"{name}_bucket", length_class="long", le="0.0005") == 8
    assert value(metrics, f"{name}_sum", length_class="long") == pytest.approx(0.004)
    assert value(metrics, "ostinato_generated_tokens_total") == 9
    ttft = "ostinato_time_to_first_token_seconds_bucket"
    assert value(metrics, ttft, length_class="long", le="0.015") == 0
    assert value(metrics, ttft, length_class="long", le="0.02") == 1
    assert value(metrics, ttft, length_class="short", le="+Inf") == 0


def test_no_tokens_are_no_gap(metrics: Metrics) -> None:
    metrics.tokens(0, 1.0)
    name = "ostinato_inter_token_latency_seconds_count"
    assert value(metrics, name, length_class="short") == 0


@pytest.mark.parametrize("reason", Shed, ids=str)
def test_every_reason_to_shed_is_there_from_the_start_and_counted(
    metrics: Metrics, reason: Shed
) -> None:
    assert value(metrics, "ostinato_requests_shed_total", reason=reason.value) == 0
    metrics.shed(reason)
    assert value(metrics, "ostinato_requests_shed_total", reason=reason.value) == 1


@pytest.mark.parametrize("reason", Aborted, ids=str)
def test_every_reason_to_abort_is_there_from_the_start_and_counted(
    metrics: Metrics, reason: Aborted
) -> None:
    assert value(metrics, "ostinato_requests_aborted_total", reason=reason.value) == 0
    metrics.aborted(reason)
    assert value(metrics, "ostinato_requests_aborted_total", reason=reason.value) == 1


def test_waits_say_which_process_waited(metrics: Metrics) -> None:
    metrics.loop_lag(0.002)
    metrics.gil_wait(0.005)
    for name, bound in (("event_loop_lag", "0.0025"), ("gil_wait", "0.005")):
        series = f"ostinato_{name}_seconds"
        assert value(metrics, f"{series}_bucket", process="front-0", le=bound) == 1
        assert value(metrics, f"{series}_bucket", process="front-0", le="0.001") == 0


def test_a_change_of_the_breaker_is_counted_once_however_often_it_is_told(
    metrics: Metrics,
) -> None:
    burn = Burn("ttft", "short", 3.5, 2.0, 40)
    for state in (State.CLOSED, State.OPEN, State.OPEN, State.RECOVERING, State.OPEN):
        metrics.breaker(state, 2, [burn])
    assert value(metrics, "ostinato_breaker_transitions_total", to="open") == 2
    assert value(metrics, "ostinato_breaker_transitions_total", to="closed") == 0
    assert value(metrics, "ostinato_breaker_state") == 2
    assert value(metrics, "ostinato_breaker_rung") == 2
    rate = value(metrics, "ostinato_breaker_burn_rate", objective="ttft", length_class="short")
    assert rate == 3.5


def test_new_weights_take_the_place_of_the_old_version(metrics: Metrics) -> None:
    metrics.model("smollm2", "initial")
    metrics.model("smollm2", "tuned")
    assert value(metrics, "ostinato_model_info", model="smollm2", version="tuned") == 1
    assert "initial" not in metrics.text()


def test_a_batch_of_any_module_counts_its_padding_by_bucket(metrics: Metrics) -> None:
    metrics.batch_ran(8, 5)
    metrics.batch_ran(8, 8)
    assert value(metrics, "graph_bucket_steps_total", bucket="8") == 2
    assert value(metrics, "graph_bucket_rows_total", bucket="8") == 16
    assert value(metrics, "graph_bucket_padding_total", bucket="8") == 3


def test_an_engine_is_read_when_somebody_asks(metrics: Metrics) -> None:
    standing = Standing()
    metrics.watch_engine(standing)
    assert value(metrics, "ostinato_engine_waiting_requests") == 3
    assert value(metrics, "ostinato_engine_waiting_tokens") == 300
    assert value(metrics, "ostinato_engine_running_requests") == 5
    assert value(metrics, "ostinato_engine_rows") == 256
    pages = {state: value(metrics, "ostinato_kv_pages", state=state) for state in
             ("used", "cached", "free")}  # fmt: skip
    assert pages == {"used": 40, "cached": 20, "free": 40}
    assert value(metrics, "ostinato_prefix_prompt_tokens_total") == 1000
    assert value(metrics, "ostinato_prefix_cached_tokens_total") == 400
    assert value(metrics, "ostinato_preemptions_total") == 2
    assert value(metrics, "ostinato_engine_answers_total", reason="stop") == 7
    assert value(metrics, "ostinato_engine_failures_total", code="step") == 1
    assert value(metrics, "ostinato_engine_steps_total") == 30
    assert value(metrics, "ostinato_engine_device_seconds_total") == 0.25
    assert value(metrics, "graph_bucket_rows_total", bucket="8") == 160
    assert value(metrics, "graph_bucket_padding_total", bucket="8") == 0
    assert value(metrics, "graph_bucket_padding_total", bucket="4") == 5
    standing.counted = counts(scheduler=Counts(9, 0, 0, 0, 100, 0, 2, 0, 0))
    assert value(metrics, "ostinato_engine_waiting_requests") == 9
    assert value(metrics, "ostinato_kv_pages", state="used") == 0


def test_an_engine_that_hangs_or_died_is_seen(metrics: Metrics) -> None:
    standing = Standing()
    metrics.watch_engine(standing)
    assert value(metrics, "ostinato_engine_up") == 1
    standing.stands = Health(
        False, "it failed", is_taking=False, idle_s=40.0, living=True, is_warm=False
    )
    assert value(metrics, "ostinato_engine_up") == 0
    assert value(metrics, "ostinato_engine_warm") == 0
    assert value(metrics, "ostinato_engine_idle_seconds") == 40


def test_replays_and_eager_runs_are_counted_by_reason(metrics: Metrics) -> None:
    instrument = metrics.watch_graphs()
    try:
        instruments.emit(Replayed("step", "step#1", 0))
        instruments.emit(RanEagerly("step", "host-sync", None))
    finally:
        instruments.remove(instrument)
    assert value(metrics, "graph_calls_total", outcome="replayed", reason="") == 1
    assert value(metrics, "graph_calls_total", outcome="eager", reason="host-sync") == 1
    assert value(metrics, "graph_reuse_rate") == 0.5


def test_the_process_says_how_much_memory_and_how_many_handles_it_has(metrics: Metrics) -> None:
    assert value(metrics, "process_resident_memory_bytes", process="front-0") > 1e6
    assert value(metrics, "process_open_fds", process="front-0") > 2


def test_nothing_is_lost_when_threads_count_at_once(metrics: Metrics) -> None:
    def count() -> None:
        for _ in range(2000):
            metrics.tokens(3, 0.003)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    name = "ostinato_inter_token_latency_seconds_count"
    assert value(metrics, name, length_class="short") == 4 * 2000 * 3
