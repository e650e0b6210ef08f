"""What one process counts: methods named for what happened, and a snapshot for the others.

Each process of the service has one `Metrics`. A front end tells it of requests and tokens, the
engine's process lets it watch the engine; `snapshot` goes over a socket, and `merging` adds the
snapshots of all processes up. A method costs about a microsecond and never waits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge

from ostinato import instruments
from ostinato.prometheus import PrometheusInstrument
from ostinato.serve.metrics import names
from ostinato.serve.metrics.engine import EngineNumbers
from ostinato.serve.metrics.histogram import Histogram
from ostinato.serve.metrics.merging import merge, pack
from ostinato.serve.metrics.model import ModelCalls, ModelNumbers
from ostinato.serve.metrics.own_process import OwnProcess
from ostinato.serve.slo import LENGTH_CLASSES, Burn, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ostinato.serve.callable.service import Numbers
    from ostinato.serve.metrics.engine import Watched


class Shed(StrEnum):
    """Why a request was refused."""

    QUEUE_FULL = "queue-full"
    """As many requests wait as may."""
    QUEUE_TOKENS = "queue-tokens"
    """The prompts that wait have as many tokens as may wait."""
    BREAKER = "breaker"
    """The objectives are missed, and its priority is among those given up."""
    DRAINING = "draining"
    """The server is about to end."""
    NO_ENGINE = "no-engine"
    """The engine is broken or not there yet."""


class Aborted(StrEnum):
    """Who or what cut a request short."""

    DISCONNECTED = "disconnected"
    """The client went away."""
    CANCELLED = "cancelled"
    """Somebody asked for it."""
    DRAINED = "drained"
    """The server's time to end ran out."""
    ENGINE_LOST = "engine-lost"
    """The engine's process died."""
    TIMED_OUT = "timed-out"
    """It took longer than it may."""


_STATE_NUMBERS = {State.CLOSED: 0, State.RECOVERING: 1, State.OPEN: 2}


class Metrics:
    """What one process counts.

    Args:
        process: Its name among the processes of this service, such as "front-0" or "engine".
    """

    def __init__(self, process: str = "front-0") -> None:
        self.process = process
        self.registry = CollectorRegistry()
        self.registry.register(OwnProcess(process))
        self._began = self._counter("ostinato_requests_total")
        self._in_flight = self._gauge("ostinato_requests_in_flight")
        self._ended = self._counter("ostinato_requests_ended_total")
        self._shed = self._counter("ostinato_requests_shed_total", Shed)
        self._aborted = self._counter("ostinato_requests_aborted_total", Aborted)
        self._prompt_tokens = self._counter("ostinato_prompt_tokens_total")
        self._generated_tokens = self._counter("ostinato_generated_tokens_total")
        first = self._histogram("ostinato_time_to_first_token_seconds", LENGTH_CLASSES)
        between = self._histogram("ostinato_inter_token_latency_seconds", LENGTH_CLASSES)
        self._first_token = {name: first.of(name) for name in LENGTH_CLASSES}
        self._between = {name: between.of(name) for name in LENGTH_CLASSES}
        self._duration = self._histogram("ostinato_request_duration_seconds")
        self._queue = self._histogram("ostinato_queue_seconds").of()
        self._lag = self._histogram("ostinato_event_loop_lag_seconds", (process,)).of(process)
        self._gil = self._histogram("ostinato_gil_wait_seconds", (process,)).of(process)
        self._breaker_state = self._gauge("ostinato_breaker_state")
        self._breaker_rung = self._gauge("ostinato_breaker_rung")
        self._burn_rate = self._gauge("ostinato_breaker_burn_rate")
        self._transitions = self._counter("ostinato_breaker_transitions_total", State)
        self._last_state = State.CLOSED
        self._model = self._gauge("ostinato_model_info")
        self._bucket_steps = self._counter("graph_bucket_steps_total")
        self._bucket_rows = self._counter("graph_bucket_rows_total")
        self._bucket_padding = self._counter("graph_bucket_padding_total")

    def request_began(self, kind: str, prompt_tokens: int = 0) -> None:
        """A request was let in; `request_ended` must follow, however it ends.

        Args:
            kind: Which of our endpoints: a word out of a fixed few, never a client's text.
        """
        self._began.labels(kind).inc()
        self._in_flight.inc()
        if prompt_tokens:
            self._prompt_tokens.inc(prompt_tokens)

    def first_token(self, ttft_s: float, length_class: str = LENGTH_CLASSES[0]) -> None:
        """The first token of an answer is about to be sent."""
        self._first_token[length_class].add(ttft_s)
        self._generated_tokens.inc()

    def tokens(self, n: int, gap_s: float, length_class: str = LENGTH_CLASSES[0]) -> None:
        """`n` more tokens of an answer came, `gap_s` after those before them."""
        if n > 0:
            self._between[length_class].add(gap_s / n, n)
            self._generated_tokens.inc(n)

    def request_ended(
        self, reason: str, e2e_s: float, queue_s: float | None = None, *, kind: str = "chat"
    ) -> None:
        """A request ended, whole or not.

        Args:
            reason: "stop", "length", "abort", "error": the finish reason.
            queue_s: How long it waited for a row; None where it never got one.
        """
        self._in_flight.dec()
        self._ended.labels(kind, reason).inc()
        self._duration.of(kind).add(e2e_s)
        if queue_s is not None:
            self._queue.add(queue_s)

    def shed(self, reason: Shed | str) -> None:
        """A request was refused before it was let in."""
        self._shed.labels(str(reason)).inc()

    def aborted(self, reason: Aborted | str) -> None:
        """A request was cut short; beside `request_ended`."""
        self._aborted.labels(str(reason)).inc()

    def loop_lag(self, seconds: float) -> None:
        """The event loop woke `seconds` later than it was asked to."""
        self._lag.add(seconds)

    def gil_wait(self, seconds: float) -> None:
        """A thread that was ready waited so long for Python's lock."""
        self._gil.add(seconds)

    def breaker(self, state: State, rung: int = 0, burns: Iterable[Burn] = ()) -> None:
        """The breaker stands like this; told again and again, a change is counted once."""
        self._breaker_state.set(_STATE_NUMBERS[state])
        self._breaker_rung.set(rung)
        if state is not self._last_state:
            self._transitions.labels(str(state)).inc()
            self._last_state = state
        for burn in burns:
            self._burn_rate.labels(burn.objective, burn.length_class).set(burn.rate)

    def model(self, name: str, version: str) -> None:
        """This model with these weights answers from now on."""
        self._model.clear()
        self._model.labels(name, version).set(1)

    def batch_ran(self, bucket: int, rows: int, steps: int = 1) -> None:
        """A batch of `rows` rows ran on what is recorded for `bucket` rows, not in an engine."""
        self._bucket_steps.labels(bucket).inc(steps)
        self._bucket_rows.labels(bucket).inc(bucket * steps)
        self._bucket_padding.labels(bucket).inc((bucket - rows) * steps)

    def watch_engine(self, engine: Watched) -> None:
        """Read an engine of this process at every snapshot."""
        self.registry.register(EngineNumbers(engine))

    def watch_model(
        self, model: str, count: Callable[[], Numbers], rows: Callable[[], int]
    ) -> ModelCalls:
        """Read a callable of this process at every snapshot, and hear of its calls.

        Args:
            model: As clients call it.
            count: What happened so far.
            rows: Of the call that is answered now.

        Returns:
            What hears of the calls, so that it can be removed again.
        """
        self.registry.register(ModelNumbers(model, count))
        calls = self._counter("ostinato_model_calls_total")
        instrument = ModelCalls(model, calls, self, rows)
        instruments.add(instrument)
        return instrument

    def watch_graphs(self) -> PrometheusInstrument:
        """Count what recordings of this process do from now on.

        Returns:
            What to hand to `instruments.remove` in the end, where the process goes on.
        """
        instrument = PrometheusInstrument(self.registry)
        instruments.add(instrument)
        return instrument

    def snapshot(self) -> bytes:
        """Return all numbers of this process, for `merge`."""
        return pack(self.registry.collect())

    def text(self) -> str:
        """Return the numbers of this process alone, as Prometheus reads them."""
        return merge([self.snapshot()])

    def _counter(self, name: str, values: Iterable[str] = ()) -> Counter:
        metric = names.BY_NAME[name]
        counter = Counter(name, metric.says, metric.labels, registry=self.registry)
        for value in values:  # a rate over a series that was never at zero misses its first rise
            counter.labels(str(value))
        return counter

    def _gauge(self, name: str) -> Gauge:
        metric = names.BY_NAME[name]
        return Gauge(name, metric.says, metric.labels, registry=self.registry)

    def _histogram(self, name: str, values: Iterable[str] = ()) -> Histogram:
        histogram = Histogram(names.BY_NAME[name], values)
        self.registry.register(histogram)
        return histogram
