"""Which recordings stay when memory is short: worth is (hits x time saved) / bytes.

Arithmetic only. The runner asks before it keeps a new recording; nothing here touches a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """One recording as the budget sees it.

    Attributes:
        graph_id: Its name.
        bytes: Memory it keeps.
        calls: Calls of its signature so far, replayed or not.
        saved_us: Time one replay saves.
        age: When it was made; larger is later.
    """

    graph_id: str
    bytes: int
    calls: int
    saved_us: float
    age: int

    @property
    def worth(self) -> float:
        """Microseconds saved so far, or that would have been, per byte."""
        return self.calls * max(self.saved_us, 1e-3) / max(self.bytes, 1)


def make_room(held: Sequence[Holding], newcomer: Holding, budget_bytes: int) -> list[str] | None:
    """Return the recordings to evict so that `newcomer` fits, or None if it is not worth it.

    The least worthy go first, the oldest first among equals. A newcomer never evicts a recording
    that is worth more than itself: under a budget for ten of five hundred shapes that would mean
    to record for ever.
    """
    free = budget_bytes - sum(holding.bytes for holding in held)
    evicted: list[str] = []
    for holding in sorted(held, key=lambda h: (h.worth, h.age)):
        if free >= newcomer.bytes:
            break
        if holding.worth > newcomer.worth:
            return None
        evicted.append(holding.graph_id)
        free += holding.bytes
    return evicted if free >= newcomer.bytes else None
