"""Stretches of time, kept small: millions of kernels in a few bytes each. Pure."""

from __future__ import annotations

from array import array
from itertools import pairwise

_MOST = 1 << 20


class Intervals:
    """Begin and end of many stretches, as their union.

    Bounded: whenever a million more have come, those that touch or overlap become one. What then
    still is too much is joined across its narrowest gaps, and `blurred_us` says how much that
    added.
    """

    def __init__(self, most: int = _MOST) -> None:
        self.blurred_us = 0.0
        self._most = most
        self._begins = array("d")
        self._ends = array("d")

    def add(self, begin: float, end: float) -> None:
        """Add one stretch."""
        self._begins.append(begin)
        self._ends.append(end)
        if len(self._begins) >= 2 * self._most:
            self._compact()

    def length(self, begin: float = float("-inf"), end: float = float("inf")) -> float:
        """Return how much of [begin, end] is covered."""
        self._compact()
        pairs = zip(self._begins, self._ends, strict=True)
        return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in pairs)

    def _compact(self) -> None:
        joined = _union(sorted(zip(self._begins, self._ends, strict=True)), 0.0)
        while len(joined) > self._most:
            gaps = sorted(b[0] - a[1] for a, b in pairwise(joined))
            narrow = gaps[len(gaps) // 2]
            covered = sum(end - begin for begin, end in joined)
            joined = _union(joined, narrow)
            self.blurred_us += sum(end - begin for begin, end in joined) - covered
        self._begins = array("d", (begin for begin, _ in joined))
        self._ends = array("d", (end for _, end in joined))


def _union(pairs: list[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for begin, end in pairs:
        if joined and begin - joined[-1][1] <= gap:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined
