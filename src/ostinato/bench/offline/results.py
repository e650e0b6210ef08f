"""What was measured under traffic, and whether it keeps what is claimed. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ostinato.bench.claims import Claim, Verdict

POINTS = 2.0


@dataclass(frozen=True, slots=True)
class Objective:
    """What a request must keep to count as good."""

    ttft_s: float = 1.0
    tpot_s: float = 0.05


@dataclass(frozen=True, slots=True)
class Answered:
    """What one request saw.

    Attributes:
        tpot_s: None with fewer than two tokens.
    """

    tokens: int
    ttft_s: float
    tpot_s: float | None

    def keeps(self, objective: Objective) -> bool:
        """Whether it counts as good."""
        is_steady = self.tpot_s is None or self.tpot_s <= objective.tpot_s
        return is_steady and self.ttft_s <= objective.ttft_s


@dataclass(frozen=True, slots=True)
class ArrivalsRow:
    """A window of arrivals.

    Attributes:
        speed: How much faster than in the trace the requests came.
        load: What was asked for per second, as a share of what the engine gave when all of the
            window came at once.
        full_tok_s: New tokens per second when it did.
        tok_s: New tokens per second of the window.
        goodput_tok_s: Those of requests that kept the objective.
        kept: The share of requests that did.
        ttft_s, tpot_s: Percentiles, by name.
    """

    model: str
    trace: str
    requests: int
    speed: float = 0.0
    load: float = 0.0
    full_tok_s: float = 0.0
    tok_s: float = 0.0
    goodput_tok_s: float = 0.0
    kept: float = 0.0
    preemptions: int = 0
    ttft_s: Mapping[str, float] = field(default_factory=dict)
    tpot_s: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class PrefixesRow:
    """Prompts that share beginnings.

    Attributes:
        ideal: Share of the blocks that were known before, if nothing is forgotten.
        hit: Share of the prompt tokens that the prefix cache found.
        seconds: For all of them.
    """

    model: str
    trace: str
    requests: int
    ideal: float = 0.0
    hit: float = 0.0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """A whole run."""

    head: Mapping[str, Any]
    objective: Objective = field(default_factory=Objective)
    arrivals: ArrivalsRow | None = None
    prefixes: PrefixesRow | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {
            **self.head,
            "objective": asdict(self.objective),
            "arrivals": None if self.arrivals is None else asdict(self.arrivals),
            "prefixes": None if self.prefixes is None else asdict(self.prefixes),
            "claims": [asdict(claim) for claim in claims_of(self)],
        }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p90 and p99: the smallest value that so many lie at or below."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        f"p{percent}": ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
        for percent in (50, 90, 99)
    }


def claims_of(result: OfflineResult) -> tuple[Claim, ...]:
    """Return the claims about what was measured, judged; toy sizes bear nothing out."""
    row = result.prefixes
    if row is None or result.head.get("options", {}).get("is_tiny"):
        return ()
    about = "prompt tokens found in the prefix cache, against the trace's ideal"
    target = f"within {POINTS:g} points of {row.ideal:.1%}"
    if row.error:
        return (Claim(about, target, row.error, Verdict.NOT_MEASURED),)
    is_met = abs(row.hit - row.ideal) * 100 <= POINTS
    verdict = Verdict.MET if is_met else Verdict.NOT_MET
    return (Claim(about, target, f"{row.hit:.1%}", verdict, row.hit),)
