"""What an accelerated model did: calls, steps replayed, hand-overs and their reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ostinato.graphs.reasons import Reason
from ostinato.hf.delegation import Delegated
from ostinato.hf.fusing import Fusion


class Answer(Enum):
    """How one `generate` was answered."""

    REPLAYED = "replayed"
    EAGER = "eager"
    DELEGATED = "delegated"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Generation:
    """The record of one `generate`.

    Attributes:
        outcome: Replayed if at least one decode step was; eager if none was; delegated if the
            model's own `generate` answered.
        reason: Why it was delegated, or why steps ran eagerly; None otherwise.
        detail: One sentence for people.
        new_tokens: Columns produced, 0 when delegated.
        steps: Decode steps run, surplus ones included.
        replayed_steps: Of those, replays.
        prefill_replayed: Whether the prompt was a replay too.
    """

    outcome: Answer
    reason: Delegated | Reason | None = None
    detail: str = ""
    new_tokens: int = 0
    steps: int = 0
    replayed_steps: int = 0
    prefill_replayed: bool = False

    def __str__(self) -> str:
        if self.outcome is Answer.DELEGATED:
            return f"delegated ({self.reason}: {self.detail})"
        text = f"{self.outcome}: {self.replayed_steps} of {self.steps} steps replayed"
        return f"{text} ({self.reason})" if self.reason else text


_SUMMED = ("calls", "replays", "recordings", "recaptures", "evictions")


@dataclass(slots=True)
class RunnerTotals:
    """The counts of runners, summed; those of closed sessions stay in.

    Attributes:
        counts: calls, replays, recordings, recaptures and evictions.
        reasons: How often each reason kept a call from being a replay.
        graphs: The recordings alive now.
    """

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    graphs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, report: dict[str, Any], *, is_alive: bool) -> None:
        """Add what one runner reports of itself."""
        for name in _SUMMED:
            self.counts[name] += report.get(name, 0)
        for reason, count in report["reasons"].items():
            self.reasons[str(reason)] += count
        if is_alive:
            self.graphs.extend(report["graphs"])

    def add_totals(self, other: RunnerTotals) -> None:
        """Add all that `other` holds."""
        self.counts.update(other.counts)
        self.reasons.update(other.reasons)
        self.graphs.extend(other.graphs)

    def copy(self) -> RunnerTotals:
        """Return totals that can be added to without changing these."""
        return RunnerTotals(Counter(self.counts), Counter(self.reasons), list(self.graphs))


@dataclass(frozen=True, slots=True)
class AccelerationReport:
    """Everything since `accelerate`.

    Attributes:
        generates: Calls of `generate`.
        delegated: Hand-overs to the model's own `generate`, by reason.
        new_tokens: Columns produced by static steps.
        steps: Decode steps run.
        replayed_steps: Of those, replays.
        runners: Totals of the runners of prefill and decode.
        cache_bytes: Memory of the resident key-value caches.
        fusion: What is fused in the decode step that was used last; None before one is recorded,
            and where nothing was to be fused.
    """

    generates: int
    delegated: dict[str, int]
    new_tokens: int
    steps: int
    replayed_steps: int
    runners: RunnerTotals
    cache_bytes: int
    fusion: Fusion | None = None

    @property
    def reuse_rate(self) -> float:
        """Share of recorded callables' calls that were replays."""
        calls = self.runners.counts["calls"]
        return self.runners.counts["replays"] / calls if calls else 0.0

    @property
    def bytes(self) -> int:
        """Memory of the recordings alive now."""
        return sum(graph["bytes"] for graph in self.runners.graphs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "generates": self.generates,
            "delegated": dict(self.delegated),
            "new_tokens": self.new_tokens,
            "steps": self.steps,
            "replayed_steps": self.replayed_steps,
            **{name: self.runners.counts[name] for name in _SUMMED},
            "reuse_rate": self.reuse_rate,
            "reasons": dict(self.runners.reasons),
            "bytes": self.bytes,
            "cache_bytes": self.cache_bytes,
            "fused": {} if self.fusion is None else self.fusion.places,
            "fused_calls_saved": 0 if self.fusion is None else self.fusion.calls_saved,
            "not_fused": {} if self.fusion is None else dict(self.fusion.refused),
            "graphs": list(self.runners.graphs),
        }

    def __str__(self) -> str:
        counts = self.runners.counts
        lines = [
            f"generate calls  {self.generates} ({sum(self.delegated.values())} delegated)",
            f"new tokens      {self.new_tokens}",
            f"decode steps    {self.steps}, {self.replayed_steps} replayed",
            f"recordings      {counts['recordings']} made, {len(self.runners.graphs)} alive",
            f"reuse rate      {self.reuse_rate:.1%}",
            f"memory          {self.bytes:,} B recordings, {self.cache_bytes:,} B cache",
        ]
        lines += [f"  delegated     {count} x {reason}" for reason, count in self.delegated.items()]
        lines += [f"  not replayed  {n} x {reason}" for reason, n in self.runners.reasons.items()]
        if self.fusion is not None:
            lines.append(f"fused           {self.fusion}")
        return "\n".join(lines)
