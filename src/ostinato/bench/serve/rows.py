"""What was measured at each load, as a file holds it; and what got slower since another. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ostinato.bench.serve.beside import Beside
from ostinato.bench.serve.objective import Objective
from ostinato.bench.serve.seen import Summary
from ostinato.errors import UsageError

_NOISE = 0.05  # of a number: what two runs on one machine may differ by
_NOISE_MS = 0.5


@dataclass(frozen=True, slots=True)
class ServeRow:
    """One load on one server.

    Attributes:
        load: As `planning.Level` names it.
        prompt, new: Tokens of each request; 0 where a trace says.
        repeats: How often it was offered; the numbers are of the repeat with the median rate.
        tok_s_all: The rate of every repeat.
        beside: The engine alone at the same work; None: it was not asked for.
    """

    model: str
    load: str
    prompt: int
    new: int
    repeats: int = 1
    tok_s_all: tuple[float, ...] = ()
    summary: Summary | None = None
    beside: Beside | None = None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        values = asdict(self)
        summary = values.pop("summary") or {}
        values["beside"] = None if self.beside is None else self.beside.to_dict()
        return values | {key: value for key, value in summary.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ServeResult:
    """A whole run.

    Attributes:
        head: When, where, with which versions and options.
        server: The server's command, or its address; and after how long it was ready.
    """

    head: Mapping[str, Any]
    objective: Objective = field(default_factory=Objective)
    server: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[ServeRow, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {
            **self.head,
            "objective": asdict(self.objective),
            "server": dict(self.server),
            "rows": [row.to_dict() for row in self.rows],
        }


Before = Mapping[tuple[str, str, int, int], Mapping[str, Any]]


def read_rows(file: Path) -> Before:
    """Read the rows that an earlier run wrote, by model, load, prompt and new.

    Raises:
        UsageError: OST4024, it is no such file.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if values["benchmark"] != "serve":
            raise ValueError(f"it is of the benchmark {values['benchmark']!r}")
        return {
            (row["model"], row["load"], row["prompt"], row["new"]): row for row in values["rows"]
        }
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(
            f"{file} is no result of this benchmark: {error!r:.120}",
            code="OST4024",
            remedy="name a file that `ostinato bench serve --out` wrote",
        ) from error


def regressions(result: ServeResult, before: Before) -> list[str]:
    """Say what got worse than noise explains, a line each."""
    return [line for row in result.rows for line in _worse(row, before)]


def _worse(row: ServeRow, before: Before) -> Iterator[str]:
    old = before.get((row.model, row.load, row.prompt, row.new))
    if old is None or row.summary is None or "tok_s" not in old:
        return
    rates = sorted(old.get("tok_s_all") or [old["tok_s"]])
    spread = max(rates) - min(rates)
    least = old["tok_s"] * (1 - _NOISE) - spread
    if row.summary.tok_s < least:
        yield f"{row.load}: {row.summary.tok_s:.4g} tokens/s, was {old['tok_s']:.4g}"
    for name in ("ttft_ms", "tpot_ms"):
        new_ms, old_ms = getattr(row.summary, name).get("p50"), old.get(name, {}).get("p50")
        if new_ms is None or old_ms is None:
            continue
        if new_ms > old_ms * (1 + _NOISE) + _NOISE_MS:
            yield f"{row.load}: {name} p50 {new_ms:.4g}, was {old_ms:.4g}"
    if row.summary.errors and not old.get("errors"):
        yield f"{row.load}: errors, {dict(row.summary.errors)}, and there were none"
