"""When a request that was refused is worth sending again: from how fast the queue moves.

Pure arithmetic on a clock that is handed in; the engine's process measures, `desk` asks. Whoever is
refused is told when the queue will have room for him too, behind those refused before him: were all
told the same moment, they would all come back at it, and most for nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_WINDOW_S = 10.0
_LEAST_S, _MOST_S = 1.0, 120.0
_UNKNOWN_S = 5.0
"""Until anything was measured."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests, with how many tokens."""

    requests: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Queue:
    """How the queue stands and how much it takes."""

    waiting: Load
    most: Load


class DrainRate:
    """Measures how fast the queue moves, and says when it will have room."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, Load]] = deque()
        self._promised = Load(0, 0)
        self._promised_at = 0.0

    def note(self, now: float, left: Load, *, is_empty: bool) -> None:
        """Take how much has left the queue since the start.

        An empty queue says how much came, not how much could have been done: it measures nothing.
        """
        if is_empty:
            self._left.clear()
            self._promised = Load(0, 0)
            return
        self._left.append((now, left))
        while self._left[0][0] < now - _WINDOW_S:
            self._left.popleft()

    def per_second(self) -> Load | None:
        """Return what leaves the queue per second; None before that is known."""
        if len(self._left) < 2:
            return None
        (began, first), (ended, last) = self._left[0], self._left[-1]
        seconds = ended - began
        if seconds <= 0:
            return None
        return Load(
            (last.requests - first.requests) / seconds, (last.tokens - first.tokens) / seconds
        )

    def retry_s(self, now: float, queue: Queue, wanted: Load) -> float:
        """Return in how many seconds there will be room for `wanted`, and promise it to them."""
        rate = self.per_second()
        is_known = rate is not None and rate.requests > 0
        # Waits are told in whole seconds: no more may be sent to one of them than the queue holds.
        speed = Load(
            min(rate.requests, queue.most.requests) if rate and is_known else queue.most.requests,
            min(rate.tokens, queue.most.tokens) if rate and is_known else queue.most.tokens,
        )
        gone = max(0.0, now - self._promised_at)
        before = self._promised
        promised = Load(
            max(0.0, before.requests - speed.requests * gone) + wanted.requests,
            max(0.0, before.tokens - speed.tokens * gone) + wanted.tokens,
        )
        self._promised, self._promised_at = promised, now
        waits = (
            _seconds(
                queue.waiting.requests + promised.requests - queue.most.requests, speed.requests
            ),
            _seconds(queue.waiting.tokens + promised.tokens - queue.most.tokens, speed.tokens),
        )
        if not is_known:
            return min(_UNKNOWN_S + max(0.0, *waits), _MOST_S)
        return min(max(_LEAST_S, *waits), _MOST_S)


def _seconds(amount: float, per_second: float) -> float:
    return amount / per_second if per_second > 0 else 0.0
