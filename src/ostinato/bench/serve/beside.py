"""A server's numbers beside those of its engine alone, at the same work in the same run. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ostinato.bench.serve.seen import Summary

LEAST_SHARE = 0.8
MOST_TIMES = 1.05


@dataclass(frozen=True, slots=True)
class Alone:
    """What the engine gave in its own process, asked without a socket.

    Attributes:
        tpot_ms: Per token behind an answer's first, the median; None if answers have one token.
        error: Why there are no numbers.
    """

    tok_s: float = 0.0
    tpot_ms: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """One load on a server, and the same on its engine.

    Attributes:
        share: The server's tokens a second as a fraction of the engine's.
        times: The server's median time per token as a multiple of the engine's.
    """

    alone: Alone
    share: float | None = None
    times: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        targets = {"least_share": LEAST_SHARE, "most_times": MOST_TIMES}
        return asdict(self.alone) | {"share": self.share, "times": self.times} | targets


def compare(server: Summary | None, alone: Alone) -> Beside:
    """Put the two beside each other; what was not measured is None."""
    if server is None:
        return Beside(alone)
    share = server.tok_s / alone.tok_s if alone.tok_s else None
    tpot_ms = server.tpot_ms.get("p50")
    times = tpot_ms / alone.tpot_ms if tpot_ms is not None and alone.tpot_ms else None
    return Beside(alone, share, times)
