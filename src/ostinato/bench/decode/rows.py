"""What was measured: one row for each engine, model and batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ostinato.bench.decode.parts import Part, Rates
from ostinato.errors import UsageError

OURS = "ostinato"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel in the steps of a row.

    Attributes:
        per_step: How often a step runs it.
        us: What that takes, per step.
    """

    name: str
    per_step: float
    us: float


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One engine with one model at one batch size.

    Attributes:
        ttft_ms: From the submission of the whole batch at once to the end of its first tokens.
        tpot_ms: Per step thereafter: (time for 129 tokens - time for 1) / 128.
        tpot_iqr_ms, ttft_iqr_ms: How far their repeats lie apart.
        tok_s: New tokens of the whole batch per second, after the first ones.
        span_ms: Time per token that launches took on the device, by its own events.
        floor_ms: The weights' bytes at the best read bandwidth of this run.
        setting: What else decides the numbers.
        submit_ms: Of the time to the first tokens, what it took to hand the whole batch in.
        first_busy_ms: Of one such time, how long some kernel ran, where kernels were asked for.
        first_kernels: The kernels of that; counts and times are of all of it, and not per step.
        kernels: What its steps ran, likewise.
        parts: The same by what it is for, with the bytes moved and the least that they take.
        error: Why there are none.
    """

    engine: str
    model: str
    batch: int
    tpot_ms: float | None = None
    ttft_ms: float | None = None
    tpot_iqr_ms: float | None = None
    ttft_iqr_ms: float | None = None
    tok_s: float | None = None
    span_ms: float | None = None
    floor_ms: float | None = None
    setting: str = ""
    submit_ms: float | None = None
    first_busy_ms: float | None = None
    first_kernels: tuple[KernelTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    parts: tuple[Part, ...] = ()
    error: str = ""

    @property
    def floor_share(self) -> float | None:
        """How much of the time per token reading the weights has to take."""
        if self.floor_ms is None or not self.tpot_ms:
            return None
        return self.floor_ms / self.tpot_ms

    @property
    def host_ratio(self) -> float | None:
        """Wall time per token to the device's own; 1 means that the host is hidden."""
        if not self.span_ms or self.tpot_ms is None:
            return None
        return self.tpot_ms / self.span_ms

    def to_dict(self) -> dict[str, Any]:
        """Return the row with what follows from it, without what is not known."""
        values = asdict(self) | {"floor_share": self.floor_share, "host_ratio": self.host_ratio}
        return {key: value for key, value in values.items() if value not in (None, "", ())}


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """A whole run.

    Attributes:
        head: When, where, with which versions and options.
        rates: How fast the device reads and multiplies at its best, in this run; 0 on a CPU.
        models: By name: bytes of weights per step, seconds to start, attention backend, memory.
    """

    head: Mapping[str, Any]
    rates: Rates = field(default_factory=Rates)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rows: tuple[DecodeRow, ...] = ()

    @property
    def is_tiny(self) -> bool:
        """Whether toys were measured, to see that everything runs."""
        return bool(self.head.get("options", {}).get("is_tiny"))

    def row(self, engine: str, model: str, batch: int) -> DecodeRow | None:
        """Return one row, if there is one."""
        wanted = (engine, model, batch)
        return next((r for r in self.rows if (r.engine, r.model, r.batch) == wanted), None)

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {
            **self.head,
            **asdict(self.rates),
            "models": {name: dict(facts) for name, facts in self.models.items()},
            "rows": [row.to_dict() for row in self.rows],
        }


def read_result(file: Path) -> DecodeResult:
    """Read what an earlier run wrote.

    Raises:
        UsageError: OST4024, it is no such file.
    """
    known = {one.name for one in fields(DecodeRow)} - {"first_kernels", "kernels", "parts"}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        rows = tuple(
            DecodeRow(**{key: value for key, value in row.items() if key in known})
            for row in values["rows"]
        )
        rates = Rates(**{each.name: float(values.get(each.name, 0)) for each in fields(Rates)})
        return DecodeResult(values, rates, values["models"], rows)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{file} is no result of this benchmark: {error!r:.120}",
            code="OST4024",
            remedy="name a file that `ostinato bench decode --out` wrote",
        ) from error
