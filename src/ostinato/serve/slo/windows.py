"""How many were in time and how many late, over the last seconds.

A histogram with one bound, the promise, for each second of the longest window.
"""

from __future__ import annotations

from collections import deque


class Lateness:
    """In time and late, second by second.

    Args:
        promise_s: Seconds that are still in time.
        keep_s: How far back is ever asked for.
    """

    __slots__ = ("_keep_s", "_seconds", "promise_s")

    def __init__(self, promise_s: float, keep_s: float) -> None:
        self.promise_s = promise_s
        self._keep_s = keep_s
        self._seconds: deque[list[int]] = deque()

    def note(self, second: int, latency_s: float, count: int) -> None:
        """Count `count` latencies at a second that is none before the last one noted."""
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
            self._forget(second)
        self._seconds[-1][2 if latency_s > self.promise_s else 1] += count

    def seen(self, now_s: float, window_s: float) -> tuple[int, int]:
        """Return how many there were within the window, and how many of them were late.

        All of the second in which the window begins counts, and of the present one what has come.
        """
        in_time = late = 0
        for second, good, bad in reversed(self._seconds):
            if second < now_s - window_s:
                break
            in_time += good
            late += bad
        return in_time + late, late

    def _forget(self, second: int) -> None:
        while self._seconds[0][0] < second - self._keep_s:
            self._seconds.popleft()
