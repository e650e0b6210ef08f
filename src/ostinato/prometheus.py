"""What the recordings do, as Prometheus metrics.

An instrument like any other: `instruments.add(PrometheusInstrument())` starts the counting, and the
registry's usual exporter serves it. Names and label values are stable; the values of `reason` are
the words that `ostinato explain` knows.
"""

from __future__ import annotations

import threading

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from ostinato.instruments import Captured, Dropped, Instrument, RanEagerly, Replayed

# A recording takes milliseconds on a small step and minutes where a compiler runs inside.
_BUILD_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class PrometheusInstrument(Instrument):
    """Counts calls, recordings and bytes of every runner in this process.

    | metric | kind | says |
    | --- | --- | --- |
    | `graph_build_duration_seconds` | histogram | how long each recording took to make |
    | `graph_reuse_rate` | gauge, 0 to 1 | replayed calls / all calls |
    | `graph_recapture_count_total` | counter | recordings made again after they were dropped |
    | `graph_calls_total{outcome,reason}` | counter | calls, eager ones with their reason |
    | `graph_bytes` | gauge | memory that recordings hold now |
    | `graph_evictions_total` | counter | recordings given up to stay within the budget |

    Args:
        registry: Where the metrics are registered; None is prometheus_client's own REGISTRY, which
            takes one PrometheusInstrument per process.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        into = REGISTRY if registry is None else registry
        self._build_seconds = Histogram(
            "graph_build_duration_seconds",
            "Seconds it took to make one recording.",
            buckets=_BUILD_SECONDS,
            registry=into,
        )
        self._reuse_rate = Gauge(
            "graph_reuse_rate", "Replayed calls as a share of all calls, 0 to 1.", registry=into
        )
        self._recaptures = Counter(
            "graph_recapture_count", "Recordings made again after they were dropped.", registry=into
        )
        self._calls = Counter(
            "graph_calls", "Calls, by what happened and why.", ("outcome", "reason"), registry=into
        )
        self._bytes = Gauge("graph_bytes", "Bytes that recordings hold.", registry=into)
        self._evictions = Counter(
            "graph_evictions", "Recordings given up to stay within the budget.", registry=into
        )
        self._lock = threading.Lock()
        self._replayed_calls = 0
        self._all_calls = 0

    def captured(self, event: Captured) -> None:
        """Count one recording, its seconds and its bytes."""
        self._build_seconds.observe(event.seconds)
        self._bytes.inc(event.bytes)
        if event.recapture:
            self._recaptures.inc()
        if event.answered_call:
            self._count_call("recorded", "")

    def replayed(self, event: Replayed) -> None:
        """Count one replayed call."""
        self._count_call("replayed", "")

    def ran_eagerly(self, event: RanEagerly) -> None:
        """Count one eager call under its reason."""
        self._count_call("eager", event.reason)

    def dropped(self, event: Dropped) -> None:
        """Take a dropped recording's bytes back; one that went for want of room is an eviction."""
        self._bytes.dec(event.bytes)
        if event.reason == "over-budget":
            self._evictions.inc()

    def _count_call(self, outcome: str, reason: str) -> None:
        self._calls.labels(outcome=outcome, reason=reason).inc()
        with self._lock:
            self._all_calls += 1
            self._replayed_calls += outcome == "replayed"
            self._reuse_rate.set(self._replayed_calls / self._all_calls)
