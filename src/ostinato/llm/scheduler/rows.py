"""Which rows of the resident state are taken."""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class Rows:
    """Rows 0 to `count` - 1, the lowest free one first: a launch covers all up to the highest."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))
        heapify(self._free)

    @property
    def free(self) -> int:
        """How many rows nobody has."""
        return len(self._free)

    def take(self) -> int:
        """Return the lowest free row, now taken."""
        return heappop(self._free)

    def give_back(self, row: int) -> None:
        """Make a row free again."""
        heappush(self._free, row)
