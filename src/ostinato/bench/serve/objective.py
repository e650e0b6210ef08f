"""What a request must keep to count as good, and percentiles as values that were seen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_PERCENTS = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Objective:
    """A service's promise.

    Attributes:
        ttft_s: The longest time to the first text.
        tpot_s: The longest time per token behind it, on an answer's average.
    """

    ttft_s: float = 1.0
    tpot_s: float = 0.05

    def is_kept(self, ttft_s: float | None, tpot_s: float | None) -> bool:
        """Whether a whole answer with these times is a good one."""
        is_steady = tpot_s is None or tpot_s <= self.tpot_s
        return is_steady and ttft_s is not None and ttft_s <= self.ttft_s


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p99 and the largest: the smallest value that so many lie at or below."""
    ordered = sorted(values)
    if not ordered:
        return {}
    found = {
        f"p{percent}": ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
        for percent in _PERCENTS
    }
    return found | {"max": ordered[-1]}
