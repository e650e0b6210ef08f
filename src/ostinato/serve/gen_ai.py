"""Spans and metrics by OpenTelemetry's names for generative AI: the one door to OpenTelemetry.

The names are those of semantic-conventions-genai v0.1.0, which are still in development: they stand
here as plain words, so that a new release of a library cannot rename them. A test compares them
with the constants of the library that is installed.

An answer is one span of kind SERVER, named "{operation} {model}", with up to three children, which
are Ostinato's own and follow each other: "queue", "prefill" and "decode". No text is ever recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram

    from ostinato.serve.telemetry import Answered

Value = str | bool | int | float | list[str]

PROVIDER = "ostinato"
# The bounds that the conventions ask for.
_DURATION_S = tuple(0.01 * 2**power for power in range(14))
_PER_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
# What clients may ask for that the conventions have a name for.
_OPTIONS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "stream": "gen_ai.request.stream",
}


class Telemetry:
    """Turns answers into spans and metrics.

    Args:
        spans: Where spans go.
        reader: Where metrics go.
        process: The name of this process among those of the service.
    """

    def __init__(self, spans: SpanProcessor, reader: MetricReader, *, process: str) -> None:
        # Whoever sets OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has the last word.
        own = Resource.create({"service.name": "ostinato", "service.instance.id": process})
        resource = own.merge(OTELResourceDetector().detect())
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._traces.add_span_processor(spans)
        self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer("ostinato.serve")
        self._carried = TraceContextTextMapPropagator()
        self._duration = self._histogram("gen_ai.server.request.duration", _DURATION_S)
        self._per_token = self._histogram("gen_ai.server.time_per_output_token", _PER_TOKEN_S)
        self._first_token = self._histogram("gen_ai.server.time_to_first_token", _FIRST_TOKEN_S)

    @classmethod
    def over_http(cls, endpoint: str, *, process: str) -> Self:
        """Send both to an OTLP endpoint, in threads of their own."""
        root = endpoint.rstrip("/")
        spans = BatchSpanProcessor(OTLPSpanExporter(f"{root}/v1/traces"))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{root}/v1/metrics"))
        return cls(spans, reader, process=process)

    def answered(self, told: Answered) -> None:
        """Record one request that is over."""
        self._measure(told)
        span = self._tracer.start_span(
            f"{told.operation} {told.model}",
            context=self._carried.extract(dict(told.carrier)),
            kind=SpanKind.SERVER,
            attributes=_attributes(told),
            start_time=told.began_ns,
        )
        inside = set_span_in_context(span)
        for name, begin_ns, end_ns in _stages(told):
            child = self._tracer.start_span(name, context=inside, start_time=begin_ns)
            child.end(end_ns)
        if told.error is not None:
            span.set_status(Status(StatusCode.ERROR, told.error))
        span.end(told.ended_ns)

    def close(self) -> None:
        """Send what is left, and end the threads; waits for the endpoint, but not for ever."""
        self._traces.shutdown()
        self._meters.shutdown(timeout_millis=5_000)

    def _measure(self, told: Answered) -> None:
        labels: dict[str, Value] = dict(_common(told))
        if told.error is not None:  # the other two are for answers that succeeded
            self._duration.record(told.duration_s, {**labels, "error.type": told.error})
            return
        self._duration.record(told.duration_s, labels)
        if told.ttft_s is not None:
            self._first_token.record(told.ttft_s, labels)
        if told.per_token_s is not None:
            self._per_token.record(told.per_token_s, labels)

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Histogram:
        meter = self._meters.get_meter("ostinato.serve")
        return meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=bounds)


def _common(told: Answered) -> dict[str, Value]:
    return {
        "gen_ai.operation.name": told.operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": told.model,
        "gen_ai.response.model": told.model,
    }


def _attributes(told: Answered) -> dict[str, Value]:
    asked = {_OPTIONS[key]: value for key, value in told.options.items() if key in _OPTIONS}
    attributes: dict[str, Value] = {
        **_common(told),
        **asked,
        "gen_ai.usage.input_tokens": told.input_tokens,
        "gen_ai.usage.output_tokens": told.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": told.cached_tokens,
        "gen_ai.response.finish_reasons": list(told.finish_reasons),
        "gen_ai.response.id": told.request_id,
        "ostinato.model.version": told.version,
    }
    if told.error is not None:
        attributes["error.type"] = told.error
    return attributes


def _stages(told: Answered) -> Iterator[tuple[str, int, int]]:
    """Yield name, begin and end of what came one after the other, as far as it got."""
    queued_ns = None if told.queued_s is None else told.began_ns + round(told.queued_s * 1e9)
    first_ns = None if told.ttft_s is None else told.began_ns + round(told.ttft_s * 1e9)
    if queued_ns is None:
        yield "queue", told.began_ns, told.ended_ns
        return
    yield "queue", told.began_ns, queued_ns
    if first_ns is None:
        yield "prefill", queued_ns, told.ended_ns
        return
    yield "prefill", queued_ns, first_ns
    yield "decode", first_ns, told.ended_ns
