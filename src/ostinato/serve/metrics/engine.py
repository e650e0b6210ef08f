"""The engine's numbers, read when somebody asks: nothing is counted twice and no step waits.

The engine keeps its own counts (`Engine.counts`, `Engine.health`); this turns them into metrics at
every snapshot of the process that it lives in. What its recordings do comes from the instrument of
`ostinato.prometheus`, under the same names as in a program without a service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ostinato.serve.metrics.names import BY_NAME, Kind

if TYPE_CHECKING:
    from ostinato.llm.limits import Limits
    from ostinato.llm.standing import EngineCounts, Health

Values = Mapping[tuple[str, ...], float]


class Watched(Protocol):
    """What is read of an engine."""

    @property
    def limits(self) -> Limits: ...

    def counts(self) -> EngineCounts: ...

    def health(self) -> Health: ...


class EngineNumbers(Collector):
    """The metrics of one engine.

    Args:
        engine: An engine of this process.
    """

    def __init__(self, engine: Watched) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        """Yield them as they are now; never waits for a step."""
        counts, health = self._engine.counts(), self._engine.health()
        numbers = {
            **_standing(health, self._engine.limits.max_batch),
            **_scheduled(counts),
            **_done(counts),
            **_buckets(counts),
        }
        for name, values in numbers.items():
            yield family(name, values)


def _standing(health: Health, rows: int) -> dict[str, Values]:
    return {
        "ostinato_engine_up": {(): float(health.is_healthy)},
        "ostinato_engine_warm": {(): float(health.is_warm)},
        "ostinato_engine_idle_seconds": {(): health.idle_s},
        "ostinato_engine_rows": {(): float(rows)},
    }


def _scheduled(counts: EngineCounts) -> dict[str, Values]:
    now = counts.scheduler
    free = now.available_pages - now.idle_pages
    return {
        "ostinato_engine_waiting_requests": {(): float(now.waiting)},
        "ostinato_engine_waiting_tokens": {(): float(now.waiting_tokens)},
        "ostinato_engine_running_requests": {(): float(now.running)},
        "ostinato_kv_pages": {
            ("used",): float(counts.pages - now.available_pages),
            ("cached",): float(now.idle_pages),
            ("free",): float(free),
        },
        "ostinato_prefix_prompt_tokens_total": {(): float(now.prompt_tokens)},
        "ostinato_prefix_cached_tokens_total": {(): float(now.cached_tokens)},
        "ostinato_preemptions_total": {(): float(now.preemptions)},
    }


def _done(counts: EngineCounts) -> dict[str, Values]:
    return {
        "ostinato_engine_answers_total": {
            (str(reason),): float(count) for reason, count in counts.ends.items()
        },
        "ostinato_engine_failures_total": {
            (code,): float(count) for code, count in counts.failures.items()
        },
        "ostinato_engine_steps_total": {(): float(counts.steps)},
        "ostinato_engine_device_seconds_total": {(): counts.device_s},
    }


def _buckets(counts: EngineCounts) -> dict[str, Values]:
    steps = sorted(counts.bucket_steps.items())
    padding = {rows: rows * each - counts.bucket_tokens.get(rows, 0) for rows, each in steps}
    return {
        "graph_bucket_steps_total": {(str(rows),): float(each) for rows, each in steps},
        "graph_bucket_rows_total": {(str(rows),): float(rows * each) for rows, each in steps},
        "graph_bucket_padding_total": {(str(rows),): float(padding[rows]) for rows, _ in steps},
    }


def family(name: str, values: Values) -> Metric:
    """Return the metric of a name of ours with its values, by its labels."""
    metric = BY_NAME[name]
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(name, metric.says, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
