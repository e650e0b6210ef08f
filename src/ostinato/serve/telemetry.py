"""Traces and metrics for OpenTelemetry, where somebody wants them; off, they cost one comparison.

A front end tells of an answer once, when it is over: everything is known then, and nothing has to
be carried along while tokens flow. `gen_ai` turns it into spans and metrics by OpenTelemetry's
names; it needs the extra `otel` and is imported by `start` alone.

    telemetry = None if settings.otel is None else start(settings.otel, process="front-0")
    ...
    if telemetry is not None:
        telemetry.answered(Answered(...))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from ostinato.errors import UsageError

if TYPE_CHECKING:
    from ostinato.serve.gen_ai import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One request that is over, whole or not. It holds no text.

    Attributes:
        operation: "chat", "text_completion" or "embeddings".
        model: As the client called it.
        version: Label of the weights that answered.
        began_ns, ended_ns: On `time.time_ns`.
        queued_s: From its beginning until it had a row; None where it never got one.
        ttft_s: From its beginning to its first token; None without one.
        input_tokens, output_tokens, cached_tokens: Cached ones are among the input.
        finish_reasons: Of its answers.
        error: Code or word of what went wrong; None if nothing did.
        request_id: As in the log.
        options: Sampling options that the client gave, by OpenAI's names.
        carrier: The request's headers `traceparent` and `tracestate`, if it has them.
    """

    operation: str
    model: str
    version: str = ""
    began_ns: int
    ended_ns: int
    queued_s: float | None = None
    ttft_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    finish_reasons: tuple[str, ...] = ()
    error: str | None = None
    request_id: str = ""
    options: Mapping[str, float | int | bool] = field(default_factory=lambda: MappingProxyType({}))
    carrier: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def duration_s(self) -> float:
        """From beginning to end."""
        return (self.ended_ns - self.began_ns) / 1e9

    @property
    def per_token_s(self) -> float | None:
        """Seconds for each token after the first; None where there is none."""
        if self.ttft_s is None or self.output_tokens < 2:
            return None
        return max(0.0, self.duration_s - self.ttft_s) / (self.output_tokens - 1)


def start(endpoint: str, *, process: str) -> Telemetry:
    """Send spans and metrics to an OTLP endpoint over HTTP, such as http://localhost:4318.

    Args:
        endpoint: Without a path; `/v1/traces` and `/v1/metrics` are added.
        process: The name of this process among those of the service.

    Raises:
        UsageError: OST6031, the extra `otel` is not installed.
    """
    try:
        from ostinato.serve.gen_ai import Telemetry
    except ModuleNotFoundError as error:
        raise UsageError(
            f"traces for OpenTelemetry need the module {error.name}, which is not installed",
            code="OST6031",
            remedy="pip install 'ostinato[otel]', or leave --otel out",
        ) from error
    return Telemetry.over_http(endpoint, process=process)
