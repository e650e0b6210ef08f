"""Every metric of the service: its name, what it says, its labels, and how processes add up.

This is the one list. A process declares its metrics from it, the merge over processes reads from it
how to join gauges, and docs/guides/metrics.md is checked against it. A name is a promise: see there
how one is retired.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# From 50 us: a decode step of a small model on a large GPU takes about a millisecond, and buckets
# that begin at 10 ms show one bar. Every bound that an objective is likely to name is a bound here.
TOKEN_SECONDS = (
    0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075,
    0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0,
)  # fmt: skip
QUEUE_SECONDS = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.75, 1.0, 2.0,
    5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
FIRST_TOKEN_SECONDS = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
    0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
REQUEST_SECONDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0,
    7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
WAIT_SECONDS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
)  # fmt: skip


class Kind(Enum):
    """What a metric is, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Join(Enum):
    """How the values that several processes give for the same labels become one."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    DERIVED = "derived"
    """A share: never summed, computed anew from the sums (see `merging`)."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: As a query names it: a counter's ends in _total; a histogram's has no _bucket.
        buckets: Upper bounds, for a histogram.
    """

    name: str
    kind: Kind
    says: str
    labels: tuple[str, ...] = ()
    join: Join = Join.SUM
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names that queries can use."""
        if self.kind is Kind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
        return (self.name,)


def _counter(name: str, says: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, says, labels)


def _gauge(name: str, says: str, *labels: str, join: Join = Join.SUM) -> Metric:
    return Metric(name, Kind.GAUGE, says, labels, join)


def _histogram(name: str, says: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, says, labels, buckets=buckets)


REQUESTS = (
    _counter("ostinato_requests_total", "Requests let in.", "kind"),
    _gauge("ostinato_requests_in_flight", "Requests let in and not ended."),
    _counter("ostinato_requests_ended_total", "Requests that ended, by how.", "kind", "reason"),
    _counter("ostinato_requests_shed_total", "Requests refused for want of room.", "reason"),
    _counter("ostinato_requests_aborted_total", "Requests cut short, by who or what.", "reason"),
    _counter("ostinato_prompt_tokens_total", "Tokens of the prompts let in."),
    _counter("ostinato_generated_tokens_total", "Tokens sent to clients."),
    _histogram(
        "ostinato_time_to_first_token_seconds",
        "From the request to its first token, by the length of the prompt.",
        FIRST_TOKEN_SECONDS,
        "length_class",
    ),
    _histogram(
        "ostinato_inter_token_latency_seconds",
        "Between two tokens of one answer; a block counts once for each of its tokens.",
        TOKEN_SECONDS,
        "length_class",
    ),
    _histogram(
        "ostinato_request_duration_seconds",
        "From the request to its end.",
        REQUEST_SECONDS,
        "kind",
    ),
    _histogram("ostinato_queue_seconds", "Until a row was free for the request.", QUEUE_SECONDS),
)

BREAKER = (
    _gauge("ostinato_breaker_state", "0 closed, 1 letting back in, 2 open.", join=Join.MAX),
    _gauge("ostinato_breaker_rung", "How much is shed: 0 nothing, then more.", join=Join.MAX),
    _gauge(
        "ostinato_breaker_burn_rate",
        "How fast the error budget goes in the longest window; 1 is as fast as it may.",
        "objective",
        "length_class",
        join=Join.MAX,
    ),
    _counter("ostinato_breaker_transitions_total", "Changes of the breaker's state.", "to"),
)

PROCESS = (
    _histogram(
        "ostinato_event_loop_lag_seconds",
        "How late the event loop wakes.",
        WAIT_SECONDS,
        "process",
    ),
    _histogram(
        "ostinato_gil_wait_seconds",
        "How long a thread that is ready waits for Python's lock.",
        WAIT_SECONDS,
        "process",
    ),
)

ENGINE = (
    _gauge("ostinato_model_info", "1; which model and which weights.", "model", "version",
           join=Join.MAX),
    _gauge("ostinato_engine_up", "Whether the engine works.", join=Join.MIN),
    _gauge("ostinato_engine_warm", "Whether all is recorded that is recorded ahead.",
           join=Join.MIN),
    _gauge("ostinato_engine_idle_seconds", "Since a step ended or nothing was to do.",
           join=Join.MAX),
    _gauge("ostinato_engine_waiting_requests", "Requests in the engine's queue."),
    _gauge("ostinato_engine_waiting_tokens", "Their tokens."),
    _gauge("ostinato_engine_running_requests", "Requests in rows."),
    _gauge("ostinato_engine_rows", "Rows there are."),
    _gauge("ostinato_kv_pages", "Pages of keys and values, by state.", "state"),
    _counter("ostinato_prefix_prompt_tokens_total", "Prompt tokens looked for in the cache."),
    _counter("ostinato_prefix_cached_tokens_total", "Prompt tokens found in the cache."),
    _counter("ostinato_preemptions_total", "Times a request was sent back to wait."),
    _counter("ostinato_engine_answers_total", "Answers that ended in the engine.", "reason"),
    _counter("ostinato_engine_failures_total", "Answers that ended in an error.", "code"),
    _counter("ostinato_engine_steps_total", "Decode steps."),
    _counter("ostinato_engine_device_seconds_total", "Seconds the steps took on the device."),
)  # fmt: skip

MODEL = (
    _gauge("ostinato_model_waiting_requests", "Requests that wait for a batch.", "model"),
    _gauge("ostinato_model_running_requests", "Requests of the batch that runs.", "model"),
    _counter("ostinato_model_batches_total", "Batches that ran.", "model"),
    _counter("ostinato_model_rows_total", "Rows of them, padding left out.", "model"),
    _counter("ostinato_model_padded_rows_total", "Rows replayed that were padding.", "model"),
    _counter("ostinato_model_busy_seconds_total", "Seconds in which a batch ran.", "model"),
    _counter(
        "ostinato_model_answers_total",
        "Requests by how they ended: answered, failed, late or refused.",
        "model",
        "outcome",
    ),
    _counter(
        "ostinato_model_calls_total",
        "Calls of the model, by what happened and why.",
        "model",
        "outcome",
        "reason",
    ),
)

GRAPHS = (
    Metric(
        "graph_build_duration_seconds",
        Kind.HISTOGRAM,
        "Seconds it took to make one recording.",
    ),
    _gauge("graph_reuse_rate", "Replayed calls as a share of all calls.", join=Join.DERIVED),
    _counter("graph_recapture_count_total", "Recordings made again after they were dropped."),
    _counter("graph_calls_total", "Calls, by what happened and why.", "outcome", "reason"),
    _gauge("graph_bytes", "Bytes that recordings hold."),
    _counter("graph_evictions_total", "Recordings given up to stay within the budget."),
    _counter("graph_bucket_steps_total", "Decode steps, by the rows of their recording.", "bucket"),
    _counter("graph_bucket_rows_total", "Rows computed in them, padding included.", "bucket"),
    _counter("graph_bucket_padding_total", "Rows of them that gave no token.", "bucket"),
)

METRICS = (*REQUESTS, *BREAKER, *PROCESS, *ENGINE, *MODEL, *GRAPHS)
BY_NAME = {metric.name: metric for metric in METRICS}
