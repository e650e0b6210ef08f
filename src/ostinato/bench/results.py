"""What a benchmark measured, as plain values: one row for each contender on each model.

A row that could not be measured stays in the table with the reason in `error`; nothing is left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ostinato.measure import Spread


class Contender(StrEnum):
    """A way to call a model; the value is the word on the command line."""

    EAGER = "eager"
    COMPILED = "compile"
    REDUCED = "reduce-overhead"
    CALLABLES = "callables"
    RAW = "raw"
    OWNED = "owned"
    LEASED = "leased"
    INSIDE = "inside"

    @property
    def label(self) -> str:
        """The name in a table."""
        return _LABELS[self]


_LABELS = {
    Contender.EAGER: "eager",
    Contender.COMPILED: "torch.compile",
    Contender.REDUCED: "torch.compile reduce-overhead",
    Contender.CALLABLES: "make_graphed_callables",
    Contender.RAW: "hand-written graph",
    Contender.OWNED: "ostinato",
    Contender.LEASED: "ostinato, leased",
    Contender.INSIDE: "ostinato, compiled inside",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """How far results lie from those of eager, over all inputs of the pool.

    Attributes:
        max_abs: Largest difference of one element; not finite if one side alone is.
        scale: Largest element of the eager results.
    """

    max_abs: float
    scale: float

    def agrees(self, tolerance: float) -> bool:
        """Whether the difference is at most `tolerance` of the scale."""
        return self.max_abs <= tolerance * self.scale


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one model.

    Attributes:
        host: From the call to its return, on an idle device.
        alone: From the call to the end of the device's work, on an idle device.
        wall: The same per call when calls follow each other, with one wait for many.
        first_call_s: The first call, with whatever it compiles and records.
        recording_s: Of that, making the graph; None where it cannot be told apart.
        kept_bytes: Device memory reserved more than before it was built; None on a CPU.
        reported_bytes: What the runner itself says its recordings keep.
        agrees: Whether the results are those of eager, within the dtype's tolerance.
        fallback: Why the calls were no replays, where a runner should have replayed.
        note: What a reader must know of this row.
        error: Why there are no numbers; empty where there are.
    """

    model: str
    setting: str
    contender: Contender
    host: Spread | None = None
    alone: Spread | None = None
    wall: Spread | None = None
    first_call_s: float | None = None
    recording_s: float | None = None
    kept_bytes: int | None = None
    reported_bytes: int | None = None
    difference: Difference | None = None
    agrees: bool | None = None
    fallback: str = ""
    note: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """One way to generate text with one model.

    Attributes:
        way: "generate", "accelerate", "hand-written graph", "make_graphed_callables" or "generate,
            static cache".
        seconds: One answer, as microseconds in a spread.
        tokens_per_s: New tokens over the median time of an answer.
        same_tokens: Answers equal to `generate`'s, and answers compared.
        parting: Where the first unequal answer parts from `generate`'s, and how near the call was.
    """

    model: str
    setting: str
    way: str
    new_tokens: int = 0
    answer: Spread | None = None
    tokens_per_s: float | None = None
    first_call_s: float | None = None
    same_tokens: tuple[int, int] | None = None
    parting: str = ""
    note: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Reuse:
    """How many calls were replays.

    Attributes:
        nodes, replayed_nodes: The same, every call weighted by the nodes of its graph.
    """

    calls: int = 0
    replays: int = 0
    nodes: float = 0.0
    replayed_nodes: float = 0.0

    @property
    def rate(self) -> float:
        """Share of calls replayed."""
        return self.replays / self.calls if self.calls else 0.0

    @property
    def rate_by_nodes(self) -> float:
        """Share of nodes replayed."""
        return self.replayed_nodes / self.nodes if self.nodes else 0.0

    def __add__(self, other: Reuse) -> Reuse:
        return Reuse(
            self.calls + other.calls,
            self.replays + other.replays,
            self.nodes + other.nodes,
            self.replayed_nodes + other.replayed_nodes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with both rates."""
        return {**asdict(self), "rate": self.rate, "rate_by_nodes": self.rate_by_nodes}


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """A trace of request lengths served by a bucketed runner, and by one graph per exact shape.

    Attributes:
        source: Where the lengths come from.
        fitted: What was done to them to fit the model.
        learnt_from: Requests of the warm-up, from whose lengths the buckets were learnt.
        requests: Requests served after it.
        prefill, decode: Calls after the warm-up.
        recordings, recording_s: Of the bucketed runners, warm-up included: the cold-start cost.
        padded_share: Share of the prefill's rows after the warm-up that were padding.
        exact_*: The same requests, warm-up included, with one graph per prompt length.
    """

    model: str
    source: str
    fitted: str
    learnt_from: int = 0
    requests: int = 0
    buckets: tuple[int, ...] = ()
    prefill: Reuse = field(default_factory=Reuse)
    decode: Reuse = field(default_factory=Reuse)
    reasons: dict[str, int] = field(default_factory=dict)
    recordings: int = 0
    recording_s: float = 0.0
    padded_share: float = 0.0
    exact_requests: int = 0
    exact_prefill: Reuse = field(default_factory=Reuse)
    exact_recordings: int = 0
    exact_recording_s: float = 0.0
    note: str = ""
    error: str = ""

    @property
    def both(self) -> Reuse:
        """Prefill and decode calls together."""
        return self.prefill + self.decode

    @property
    def cold_start_saving(self) -> float | None:
        """Share of the recording time of one graph per shape that buckets save."""
        if not self.exact_recording_s or self.error:
            return None
        return 1 - self.recording_s / self.exact_recording_s

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with the rates."""
        reuses = {
            name: getattr(self, name).to_dict()
            for name in ("prefill", "decode", "both", "exact_prefill")
        }
        return {**asdict(self), **reuses, "cold_start_saving": self.cold_start_saving}


@dataclass(frozen=True, slots=True)
class GraphsResult:
    """Everything that `ostinato bench graphs` found.

    Attributes:
        head: Date, machine, versions and options.
        is_tiny: Models of toy size: the numbers show that the benchmark works, nothing else.
    """

    head: dict[str, Any]
    rows: tuple[Row, ...] = ()
    generations: tuple[GenerationRow, ...] = ()
    traffic: TrafficRow | None = None
    is_tiny: bool = False

    def row(self, model: str, contender: Contender) -> Row | None:
        """Return one contender's row on one model, if it was asked for."""
        wanted = (row for row in self.rows if (row.model, row.contender) == (model, contender))
        return next(wanted, None)
