"""A histogram that takes a value many times at once.

A block of eight tokens is eight values of the time between tokens. prometheus_client's histogram
would take a lock and walk its buckets for each; this one does so once for the block.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from ostinato.serve.metrics.names import Metric


class Tally:
    """The buckets of one set of labels.

    Args:
        bounds: Upper bounds, ascending; a value on a bound is within it.
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def add(self, value: float, times: int = 1) -> None:
        """Count `value`, `times` times."""
        at = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[at] += times
            self._sum += value * times

    def read(self) -> tuple[list[int], float]:
        """Return the count of each bucket, the last being that above all bounds, and the sum."""
        with self._lock:
            return list(self._counts), self._sum


class Histogram(Collector):
    """One metric: a tally for each value of its label.

    Args:
        metric: Its name, buckets, and at most one label.
        values: Values of the label that are there from the start, at zero.
    """

    def __init__(self, metric: Metric, values: Iterable[str] = ()) -> None:
        self._metric = metric
        self._lock = threading.Lock()
        self._tallies: dict[str, Tally] = {}
        for value in values if metric.labels else ("",):
            self.of(value)

    def of(self, value: str = "") -> Tally:
        """Return the tally of one value of the label; keep it, where many values are counted."""
        tally = self._tallies.get(value)
        if tally is None:
            with self._lock:
                tally = self._tallies.setdefault(value, Tally(self._metric.buckets))
        return tally

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Yield the family as prometheus_client asks for it."""
        family = HistogramMetricFamily(
            self._metric.name, self._metric.says, labels=self._metric.labels
        )
        bounds = [*map(floatToGoString, self._metric.buckets), "+Inf"]
        with self._lock:
            tallies = sorted(self._tallies.items())
        for value, tally in tallies:
            counts, total = tally.read()
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            family.add_metric([value] if self._metric.labels else [], buckets, total)
        yield family
