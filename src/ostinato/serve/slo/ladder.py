"""Which priorities are shed: rung by rung from the lowest, never all of the highest.

Each rung cuts a little more: half of the lowest priority, then all of it, then half of the next.
The most urgent priority keeps one request in eight, for without traffic nobody would see that the
service is well again. Rungs are taken back in the opposite order.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

_HALF, _PROBES, _NONE = 0.5, 0.125, 0.0
_LEAST_CUT = 0.125
"""A rung touches at least this share of the traffic, however many priorities it takes."""
_REMEMBER_S = 60


@dataclass(frozen=True, slots=True)
class Cut:
    """A rung: priorities of larger numbers are shed, of `priority` only `share` is let in."""

    priority: int
    share: float


class Ladder:
    """The rungs, and the traffic that they are chosen from."""

    def __init__(self) -> None:
        self._cuts: list[Cut] = []
        self._asked: deque[tuple[int, Counter[int]]] = deque()
        self._credit = 0.0

    @property
    def rung(self) -> int:
        """How many rungs are taken; 0 sheds nothing."""
        return len(self._cuts)

    def admits(self, priority: int, second: int) -> bool:
        """Note a request, and return whether it is let in."""
        if not self._asked or self._asked[-1][0] != second:
            self._asked.append((second, Counter()))
            while self._asked[0][0] < second - _REMEMBER_S:
                self._asked.popleft()
        self._asked[-1][1][priority] += 1
        share = self._share_of(priority)
        if share in (0.0, 1.0):
            return share == 1.0
        self._credit += share  # the same requests in the same order are let in: no dice
        if self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True

    def climb(self, second: int) -> bool:
        """Shed a little more; False if nothing is left that may be shed."""
        cut = self._next_cut(second)
        if cut is not None:
            self._cuts.append(cut)
        return cut is not None

    def descend(self) -> None:
        """Take the last rung back."""
        self._cuts.pop()

    def can_climb(self, second: int) -> bool:
        """Return whether something is left that may be shed."""
        return self._next_cut(second) is not None

    def _share_of(self, priority: int) -> float:
        if not self._cuts:
            return 1.0
        last = self._cuts[-1]
        if priority == last.priority:
            return last.share
        return 1.0 if priority < last.priority else _NONE

    def _next_cut(self, second: int) -> Cut | None:
        asked: Counter[int] = Counter()
        for at, priorities in self._asked:
            if at >= second - _REMEMBER_S:
                asked.update(priorities)
        open_to = {p: n * self._share_of(p) for p, n in asked.items() if self._share_of(p) > 0}
        if not open_to:
            return None
        at_priority = self._lowest_that_matter(open_to)
        floor = _PROBES if at_priority == min(asked) else _NONE
        share = _HALF if self._share_of(at_priority) == 1.0 else floor
        return Cut(at_priority, share) if share < self._share_of(at_priority) else None

    def _lowest_that_matter(self, open_to: dict[int, float]) -> int:
        wanted, taken = _LEAST_CUT * sum(open_to.values()), 0.0
        for priority in sorted(open_to, reverse=True):
            taken += open_to[priority]
            if taken >= wanted:
                return priority
        return min(open_to)
