"""A clock that stands still while no block runs, and a watch that lives by it.

A watch may spend so much of the time that passes. A worker of `watch_overhead.py` sleeps most of
the time; by a common clock its watch would save that up, and spend it in the blocks. So its clocks
stand still meanwhile, and so do its threads. Nor has it anything to spend beforehand: that is for
short watches, a twentieth of a second once, and blocks as short as ours would see nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from types import ModuleType
from unittest.mock import patch

from ostinato.doctor import keeper
from ostinato.doctor.collect import allocator, sampler
from ostinato.doctor.collect.bell import Bell

_LIVING_BY_IT: tuple[ModuleType, ...] = (keeper, sampler, allocator)
_LOOK_S = 0.05


class StandingClock:
    """Stands still until it is let go; may be let go and held again."""

    def __init__(self) -> None:
        self._goes = threading.Event()
        self._passed_s = 0.0
        self._since_s = 0.0

    def now(self) -> float:
        """Return the seconds during which it went."""
        return self._passed_s + (perf_counter() - self._since_s if self._goes.is_set() else 0.0)

    @contextmanager
    def going(self) -> Iterator[None]:
        """Let it go for a while; in one thread."""
        self._since_s = perf_counter()
        self._goes.set()
        try:
            yield
        finally:
            self._passed_s = self.now()
            self._goes.clear()

    def wait(self, bell: Bell, seconds: float) -> bool:
        """Wait for so long at most, by this clock, and at least until it goes again."""
        until = self.now() + seconds
        while True:
            left = until - self.now()
            if not self._goes.is_set():
                if Bell.wait(bell, 0):
                    return True
                self._goes.wait(_LOOK_S)
            elif Bell.wait(bell, max(left, 0.0)):
                return True
            elif left <= 0:
                return False

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """Let watches live by it that begin and end meanwhile."""
        clock = self

        class HeldBell(Bell):
            def wait(self, seconds: float) -> bool:
                return clock.wait(self, seconds)

        ours = {"perf_counter": self.now, "Bell": HeldBell, "_ALLOWANCE_S": 0.0}
        with ExitStack() as stack:
            for module in _LIVING_BY_IT:
                known = {name: each for name, each in ours.items() if hasattr(module, name)}
                stack.enter_context(patch.multiple(module, **known))
            yield
