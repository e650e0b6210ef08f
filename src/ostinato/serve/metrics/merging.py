"""From the snapshots of several processes to one text for Prometheus: plain functions.

The service is several processes, and what a scrape returns must be the sum over all of them,
whoever answers it. Each process packs its numbers into bytes; whoever was asked adds them up.
Counters and histograms are summed; a gauge is summed, or the largest or smallest, as `names` says;
a share is never summed but computed from the sums.

A process that died took its counts with it, and a sum that falls looks to Prometheus like a restart
of everything. `retire` keeps what must not be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import add

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import Metric as PrometheusFamily
from prometheus_client.registry import Collector

from ostinato.serve.metrics.names import BY_NAME, Join

Labels = tuple[tuple[str, str], ...]
"""Names and values, by name."""


class Sample(msgspec.Struct, array_like=True, frozen=True):
    """One number; `name` is the family's, or that with _total, _bucket, _count or _sum."""

    name: str
    labels: Labels
    value: float


class Family(msgspec.Struct, array_like=True, frozen=True):
    """One metric with all its numbers; `kind` is "counter", "gauge" or "histogram"."""

    name: str
    kind: str
    says: str
    samples: tuple[Sample, ...]

    def value(self, **labels: str) -> float:
        """Return the number with exactly these labels, of a counter or gauge; 0 without one."""
        wanted = tuple(sorted(labels.items()))
        return next((each.value for each in self.samples if each.labels == wanted), 0.0)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Family, ...])
_JOINS: dict[Join, Callable[[float, float], float]] = {
    Join.SUM: add,
    Join.MAX: max,
    Join.MIN: min,
    Join.DERIVED: max,
}


def pack(families: Iterable[PrometheusFamily]) -> bytes:
    """Return what prometheus_client collected, as bytes for `merge`."""
    return _encoder.encode(tuple(_plain(family) for family in families))


def merge(snapshots: Sequence[bytes]) -> str:
    """Return the numbers of all processes together, in Prometheus' text format."""
    return render(add_up(snapshots))


def retire(snapshots: Sequence[bytes]) -> bytes:
    """Return what stays of processes that have ended: their counts, and no state.

    Give the result to `merge` beside the snapshots of the living, and to `retire` when one more
    ends.
    """
    counted = (family for family in add_up(snapshots) if family.kind != "gauge")
    return _encoder.encode(tuple(counted))


def add_up(snapshots: Sequence[bytes]) -> list[Family]:
    """Return the families of all processes, each once, by name."""
    first: dict[str, Family] = {}
    numbers: dict[str, dict[tuple[str, Labels], float]] = {}
    for snapshot in snapshots:
        for family in _decoder.decode(snapshot):
            first.setdefault(family.name, family)
            _join(numbers.setdefault(family.name, {}), family)
    families = [
        Family(name, family.kind, family.says, _samples(numbers[name]))
        for name, family in sorted(first.items())
    ]
    return [_derived(family, families) for family in families]


def render(families: Iterable[Family]) -> str:
    """Return families as Prometheus reads them."""
    return generate_latest(_Families(families)).decode()


class _Families(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[PrometheusFamily]:
        for family in self._families:
            told = PrometheusFamily(family.name, family.says, family.kind)
            for sample in family.samples:
                told.add_sample(sample.name, dict(sample.labels), sample.value)
            yield told


def _plain(family: PrometheusFamily) -> Family:
    samples = tuple(
        Sample(each.name, tuple(sorted(each.labels.items())), float(each.value))
        for each in family.samples
        if not each.name.endswith("_created")  # a time: nothing that could be added
    )
    return Family(family.name, family.type, family.documentation, samples)


def _join(numbers: dict[tuple[str, Labels], float], family: Family) -> None:
    join = _JOINS[_join_of(family)]
    for sample in family.samples:
        key = (sample.name, sample.labels)
        numbers[key] = join(numbers[key], sample.value) if key in numbers else sample.value


def _join_of(family: Family) -> Join:
    metric = BY_NAME.get(family.name)
    return metric.join if metric is not None else Join.SUM


def _samples(numbers: dict[tuple[str, Labels], float]) -> tuple[Sample, ...]:
    return tuple(Sample(name, labels, value) for (name, labels), value in numbers.items())


def _derived(family: Family, families: Sequence[Family]) -> Family:
    """Return `graph_reuse_rate` computed from the calls of all processes; others as they are."""
    if _join_of(family) is not Join.DERIVED:
        return family
    calls = [sample for each in families if each.name == "graph_calls" for sample in each.samples]
    total = sum(sample.value for sample in calls)
    replayed = sum(s.value for s in calls if ("outcome", "replayed") in s.labels)
    rate = replayed / total if total else 0.0
    return Family(family.name, family.kind, family.says, (Sample(family.name, (), rate),))
