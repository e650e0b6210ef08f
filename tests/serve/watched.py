"""A service's processes without a service: metrics of a front end and of an engine that stands."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from ostinato import instruments
from ostinato.instruments import Captured, RanEagerly, Replayed
from ostinato.llm.limits import Limits
from ostinato.llm.request import FinishReason
from ostinato.llm.scheduler import Counts
from ostinato.llm.standing import EngineCounts, Health
from ostinato.serve.callable.service import Numbers
from ostinato.serve.metrics import Aborted, Metrics, Shed, merge
from ostinato.serve.slo import Burn, State


def counts(**changed: object) -> EngineCounts:
    values: dict[str, object] = {
        "scheduler": Counts(3, 300, 5, 1, 60, 20, 2, 1000, 400),
        "ends": {FinishReason.STOP: 7, FinishReason.ABORT: 1},
        "failures": {"step": 1},
        "new_tokens": 70,
        "steps": 30,
        "device_s": 0.25,
        "bucket_steps": {4: 10, 8: 20},
        "bucket_tokens": {4: 35, 8: 160},
        "pages": 100,
    }
    return EngineCounts(**{**values, **changed})  # type: ignore[arg-type]


@dataclass
class Standing:
    """An engine as metrics see it."""

    counted: EngineCounts = field(default_factory=counts)
    stands: Health = field(
        default_factory=lambda: Health(
            True, None, is_taking=True, idle_s=0.5, living=True, is_warm=True
        )
    )
    limits: Limits = field(default_factory=Limits)

    def counts(self) -> EngineCounts:
        return self.counted

    def health(self) -> Health:
        return self.stands


def model_numbers() -> Numbers:
    """What a callable has done."""
    return Numbers(
        waiting=2, running=1, batches=5, rows=11, answered=9, failed=1, late=1, refused=3,
        replays=4, padded_rows=5, eager={"host-sync": 1}, stuck_s=0.0, busy_s=0.75, pid=1,
    )  # fmt: skip


def snapshots(standing: Standing | None = None) -> list[bytes]:
    """Of a front end and of an engine's process, with nothing having happened yet."""
    front, engine = Metrics("front-0"), Metrics("engine")
    engine.watch_engine(standing or Standing())
    instruments.remove(engine.watch_graphs())
    model = Metrics("callable")
    instruments.remove(model.watch_model("encoder", model_numbers, lambda: 0))
    return [front.snapshot(), engine.snapshot(), model.snapshot()]


def series_of(text: str) -> set[str]:
    """The names that a query can use, those without a value yet included."""
    names: set[str] = set()
    for family in text_string_to_metric_families(text):
        base = family.name
        if family.type == "counter":
            names.add(f"{base}_total")
        elif family.type == "histogram":
            names |= {f"{base}_bucket", f"{base}_count", f"{base}_sum"}
        else:
            names.add(base)
    return names


def live_series() -> set[str]:
    """What a scrape of a running service offers."""
    return series_of(merge(snapshots()))


def busy_snapshots() -> list[bytes]:
    """Of a front end and an engine's process in which everything has happened once."""
    front, engine = Metrics("front-0"), Metrics("engine")
    for kind in ("chat", "completions"):
        front.request_began(kind, prompt_tokens=10)
        front.first_token(0.02)
        front.tokens(8, 0.004)
        front.request_ended("stop", 0.3, 0.001, kind=kind)
    for shed in Shed:
        front.shed(shed)
    for aborted in Aborted:
        front.aborted(aborted)
    front.breaker(State.OPEN, 1, [Burn("ttft", "short", 2.0, 2.0, 40)])
    engine.model("smollm2", "initial")
    engine.watch_engine(Standing())
    instrument = engine.watch_graphs()
    try:
        instruments.emit(Captured("step", "step#1", 0.2, 1000, 30, recapture=False))
        instruments.emit(Replayed("step", "step#1", 0))
        instruments.emit(RanEagerly("step", "host-sync", None))
    finally:
        instruments.remove(instrument)
    return [front.snapshot(), engine.snapshot(), busy_model()]


def busy_model() -> bytes:
    """Of the process of a callable that has answered in every way."""
    model = Metrics("callable")
    calls = model.watch_model("encoder", model_numbers, lambda: 0)
    try:
        instruments.emit(Captured("step", "step#1", 0.2, 1000, 30, recapture=False))
        instruments.emit(Replayed("step", "step#1", 1))
        instruments.emit(RanEagerly("step", "host-sync", None))
    finally:
        instruments.remove(calls)
    return model.snapshot()
