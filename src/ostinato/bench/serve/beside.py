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
        ttft_ms: From asking to the first token, the median.
        error: Why there are no numbers.
    """

    tok_s: float = 0.0
    tpot_ms: float | None = None
    ttft_ms: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """One load on a server, and the same on its engine.

    Attributes:
        share: The server's tokens a second as a fraction of the engine's.
        times: The server's median time per token as a multiple of the engine's.
        added_ttft_ms: The server's median time to the first token beyond the engine's.
    """

    alone: Alone
    share: float | None = None
    times: float | None = None
    added_ttft_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        targets = {"least_share": LEAST_SHARE, "most_times": MOST_TIMES}
        found = {
            "share": self.share,
            "times": self.times,
            "added_ttft_ms": self.added_ttft_ms,
        }
        return asdict(self.alone) | found | targets


def compare(server: Summary | None, alone: Alone) -> Beside:
    """Put the two beside each other; what was not measured is None."""
    if server is None:
        return Beside(alone)
    share = server.tok_s / alone.tok_s if alone.tok_s else None
    tpot_ms = server.tpot_ms.get("p50")
    times = tpot_ms / alone.tpot_ms if tpot_ms is not None and alone.tpot_ms else None
    ttft_ms = server.ttft_ms.get("p50")
    added = None if ttft_ms is None or alone.ttft_ms is None else ttft_ms - alone.ttft_ms
    return Beside(alone, share, times, added)
