"""How seldom a watch looks at a step, so that looking keeps to its budget. Pure.

What is asked of each operation of a step may take a tenth of a small one. So the watch times its
own looks, and passes over as many steps as it takes for them to come to `SHARE` of the steps' time.
Where looks are cheap, or steps long, it looks at every one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from random import Random

SHARE = 0.005
"""Of the CPU time of the steps, what looking at them may take: idle time bears no looks."""

ALL_OF_THE_FIRST = 256
"""Steps of a thread; what goes wrong at the beginning, and a short run, are seen whole."""

_MOST_AT_FIRST = 2048  # of all threads: a server may make one for each request
_BEYOND = (
    2.0  # a look takes so much more than its notes are timed at: caches, and what leads to them
)
_RECENT = 8.0  # looks: so many have a say in what the next is taken to cost
_LEAP = 2.0  # a look that took longer than this many was interrupted: no more counts of it


@dataclass(slots=True)
class Pace:
    """Of one watch, for all of its threads.

    Attributes:
        looks: Steps that were looked at.
        spent_ns: What all notes on them took, as timed.
        look_ns: What the notes on one step take, lately.
        step_ns: What CPU time a step takes its thread, lately.
    """

    looks: int = 0
    spent_ns: float = 0.0
    look_ns: float = 0.0
    step_ns: float = 0.0

    def learn(self, look_ns: float, step_ns: float) -> None:
        """Hear what the notes on a step took, and a step since the one looked at before it."""
        self.spent_ns += look_ns
        self.look_ns = _lately(self.look_ns, look_ns)
        self.step_ns = _lately(self.step_ns, step_ns)

    @property
    def one_of(self) -> int:
        """Of how many steps one may be looked at."""
        if not self.step_ns:
            return 1
        return max(1, ceil(_BEYOND * self.look_ns / (SHARE * self.step_ns)))

    def looks_at_all(self, begun: int) -> bool:
        """Whether a thread that has begun so many steps still looks at every one."""
        return begun < ALL_OF_THE_FIRST and self.looks < _MOST_AT_FIRST

    def passed_over(self, begun: int, lot: Random) -> int:
        """Return how many steps a thread passes over now; by lot, or a rhythm might hide some."""
        return 0 if self.looks_at_all(begun) else lot.randrange(2 * self.one_of - 1)


def _lately(known: float, new: float) -> float:
    if not known:
        return new
    return known + (min(new, _LEAP * known) - known) / _RECENT
