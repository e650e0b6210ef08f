"""OpenTelemetry: spans and metrics by its current names, without a word of anybody's text."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ostinato.serve.telemetry import Answered, start

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.trace import SpanKind, StatusCode

from ostinato.serve.gen_ai import Telemetry

SECOND = 1_000_000_000
BEGAN = 1_700_000_000 * SECOND


def answer(**changed: Any) -> Answered:
    values: dict[str, Any] = {
        "operation": "chat",
        "model": "smollm2",
        "version": "tuned",
        "began_ns": BEGAN,
        "ended_ns": BEGAN + 2 * SECOND,
        "queued_s": 0.25,
        "ttft_s": 0.5,
        "input_tokens": 100,
        "output_tokens": 16,
        "cached_tokens": 64,
        "finish_reasons": ("stop",),
        "request_id": "req-1",
        "options": {"temperature": 0.7, "max_tokens": 16, "user": 5},
    }
    return Answered(**{**values, **changed})


class Recorded:
    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.telemetry = Telemetry(
            SimpleSpanProcessor(self.exporter), self.reader, process="front-0"
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        (scope,) = data.resource_metrics[0].scope_metrics
        return {metric.name: metric.data.data_points[0] for metric in scope.metrics}


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    made = Recorded()
    yield made
    made.telemetry.close()


def test_an_answer_is_a_span_of_a_server_with_its_three_stages_inside(recorded: Recorded) -> None:
    recorded.telemetry.answered(answer())
    spans = recorded.spans
    assert set(spans) == {"chat smollm2", "queue", "prefill", "decode"}
    whole = spans["chat smollm2"]
    assert whole.kind is SpanKind.SERVER
    assert (whole.start_time, whole.end_time) == (BEGAN, BEGAN + 2 * SECOND)
    borders = [BEGAN, BEGAN + SECOND // 4, BEGAN + SECOND // 2, BEGAN + 2 * SECOND]
    for name, begin, end in zip(("queue", "prefill", "decode"), borders, borders[1:], strict=False):
        span = spans[name]
        assert (span.start_time, span.end_time) == (begin, end)
        assert span.parent is not None
        assert span.parent.span_id == whole.context.span_id


def test_attributes_have_the_names_of_the_conventions(recorded: Recorded) -> None:
    recorded.telemetry.answered(answer())
    attributes = recorded.spans["chat smollm2"].attributes
    assert attributes is not None
    assert dict(attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ostinato",
        "gen_ai.request.model": "smollm2",
        "gen_ai.response.model": "smollm2",
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.max_tokens": 16,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 16,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.id": "req-1",
        "ostinato.model.version": "tuned",
    }


def test_every_gen_ai_name_is_one_that_the_installed_conventions_know(recorded: Recorded) -> None:
    known = {
        value
        for module in (gen_ai_attributes, gen_ai_metrics)
        for name, value in vars(module).items()
        if name.startswith("GEN_AI_")
    }
    source = Path(sys.modules[Telemetry.__module__].__file__ or "").read_text(encoding="utf-8")
    used = {word for word in source.split('"') if word.startswith("gen_ai.")}
    assert len(used) > 15
    assert used <= known
    old = {"gen_ai.system", "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"}
    assert not used & old


def test_metrics_have_the_names_units_and_bounds_of_the_conventions(recorded: Recorded) -> None:
    recorded.telemetry.answered(answer())
    points = recorded.points()
    duration = points["gen_ai.server.request.duration"]
    assert duration.sum == 2.0
    assert duration.explicit_bounds[:2] == (0.01, 0.02)
    assert duration.explicit_bounds[-1] == 81.92
    assert points["gen_ai.server.time_to_first_token"].sum == 0.5
    assert points["gen_ai.server.time_to_first_token"].explicit_bounds[0] == 0.001
    assert points["gen_ai.server.time_per_output_token"].sum == pytest.approx(0.1)
    labels = dict(duration.attributes)
    assert labels["gen_ai.operation.name"] == "chat"
    assert "error.type" not in labels


def test_a_request_that_failed_has_an_error_type_and_counts_for_its_duration_only(
    recorded: Recorded,
) -> None:
    recorded.telemetry.answered(answer(error="OST5141", finish_reasons=("error",)))
    span = recorded.spans["chat smollm2"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "OST5141"
    points = recorded.points()
    assert set(points) == {"gen_ai.server.request.duration"}
    assert points["gen_ai.server.request.duration"].attributes["error.type"] == "OST5141"


@pytest.mark.parametrize(
    ("reached", "stages"),
    [
        ({"queued_s": None, "ttft_s": None}, {"queue"}),
        ({"queued_s": 0.25, "ttft_s": None}, {"queue", "prefill"}),
    ],
)
def test_stages_end_where_the_request_did(
    recorded: Recorded, reached: dict[str, Any], stages: set[str]
) -> None:
    recorded.telemetry.answered(answer(output_tokens=0, **reached))
    assert set(recorded.spans) == {"chat smollm2", *stages}
    assert max(span.end_time or 0 for span in recorded.spans.values()) == BEGAN + 2 * SECOND
    assert "gen_ai.server.time_to_first_token" not in recorded.points()


def test_one_token_has_no_time_per_token() -> None:
    assert answer(output_tokens=1).per_token_s is None
    assert answer(output_tokens=4, ttft_s=0.5).per_token_s == pytest.approx(0.5)


def test_a_callers_trace_goes_on(recorded: Recorded) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    recorded.telemetry.answered(answer(carrier={"traceparent": parent}))
    span = recorded.spans["chat smollm2"]
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"


def test_a_broken_traceparent_begins_a_new_trace(recorded: Recorded) -> None:
    recorded.telemetry.answered(answer(carrier={"traceparent": "nonsense"}))
    assert recorded.spans["chat smollm2"].parent is None


@contextmanager
def receiver() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """A real HTTP server that keeps what it is sent, by path."""
    got: dict[str, list[bytes]] = {}

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            got.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Keep) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", got
        server.shutdown()
        thread.join()


def test_spans_and_metrics_arrive_at_an_otlp_endpoint() -> None:
    with receiver() as (endpoint, got):
        telemetry = start(endpoint, process="front-3")
        telemetry.answered(answer())
        telemetry.close()
    traces = ExportTraceServiceRequest.FromString(got["/v1/traces"][0]).resource_spans[0]
    names = {span.name for scope in traces.scope_spans for span in scope.spans}
    assert names == {"chat smollm2", "queue", "prefill", "decode"}
    resource = {each.key: each.value.string_value for each in traces.resource.attributes}
    assert resource["service.name"] == "ostinato"
    assert resource["service.instance.id"] == "front-3"
    metrics = ExportMetricsServiceRequest.FromString(got["/v1/metrics"][0]).resource_metrics[0]
    measured = {metric.name for scope in metrics.scope_metrics for metric in scope.metrics}
    assert "gen_ai.server.time_to_first_token" in measured


def test_the_name_of_the_service_can_be_set_as_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat-frontend")
    recorded = Recorded()
    recorded.telemetry.answered(answer())
    assert recorded.spans["queue"].resource.attributes["service.name"] == "chat-frontend"
    recorded.telemetry.close()


def test_off_it_is_not_even_imported() -> None:
    code = (
        "import sys, ostinato.serve.telemetry, ostinato.serve.metrics\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry.exporter.otlp.proto.http.metric_exporter'] = None\n"
        "from ostinato.serve.telemetry import start\n"
        "from ostinato.errors import UsageError\n"
        "try:\n"
        "    start('http://localhost:4318', process='front-0')\n"
        "except UsageError as error:\n"
        "    assert error.code == 'OST6031' and 'ostinato[otel]' in error.remedy\n"
        "else:\n"
        "    raise SystemExit('nothing was raised')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
