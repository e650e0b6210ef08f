"""How soon the sampler gets the GIL once it asks for it.

A thread that wants the GIL waits for the switch interval, 5 ms, before it asks its holder to let
go. A holder that lets go sooner of its own accord, at its next call into torch, is then seen there,
and not at the line that held it. So the interval is cut to a fraction while a single thread of the
program wants the GIL: nobody but the sampler waits for it then, and nothing of the program runs
otherwise than before. As soon as two want it the program's own interval counts again, because a
short one would change how they take turns.

The program meets none of this: it reads the interval that it would have, and one that it sets is
never touched again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ostinato.doctor.collect.patches import Patches

SHORT_S = 2e-4
"""Below it, one that waits out a long call is woken so often that it takes more than looking."""

_CALM = 25  # looks that saw no two threads want it: threads that take turns may both be missed once


class Turns:
    """Shortens the switch interval, and puts it back.

    Args:
        read, write: The interpreter's interval, in seconds.
    """

    def __init__(
        self,
        read: Callable[[], float] = sys.getswitchinterval,
        write: Callable[[float], None] = sys.setswitchinterval,
    ) -> None:
        self._read = read
        self._write = write
        self._programs_s = read()
        self._chosen = False
        self._short = False
        self._calm = _CALM

    def start(self, patches: Patches) -> None:
        """Stand before what reads and sets the interval; a forked child gets its own back."""
        patches.replace(sys, "getswitchinterval", self._reader)
        patches.replace(sys, "setswitchinterval", self._setter)
        os.register_at_fork(after_in_child=self.give_back)

    def _reader(self, _: Any) -> Any:
        def getswitchinterval() -> float:
            return self.read()

        return getswitchinterval

    def _setter(self, _: Any) -> Any:
        def setswitchinterval(interval: float, /) -> None:
            self.choose(interval)

        return setswitchinterval

    def read(self) -> float:
        """Return the interval that the program would have without us."""
        return self._programs_s if self._short else self._read()

    def choose(self, seconds: float) -> None:
        """Set what the program wants from now on, as `sys.setswitchinterval` does."""
        self._write(seconds)
        self._chosen = True
        self._programs_s, self._short = self._read(), False

    def after_look(self, wanting: int) -> None:
        """Hear how many threads of the program wanted the GIL since the last look."""
        self._calm = self._calm + 1 if wanting < 2 else 0
        if self._calm < _CALM:
            self.give_back()
        elif not self._short and not self._chosen:
            self._programs_s, self._short = self._read(), True
            self._write(min(SHORT_S, self._programs_s))
            if self._chosen:  # by the program, on its thread, since it was asked for
                self.choose(self._programs_s)

    def give_back(self) -> None:
        """Let the program's own interval count."""
        if self._short:
            self._short = False
            self._write(self._programs_s)

    def tells_the_line(self, late_s: float) -> bool:
        """Whether a look that got the GIL so late saw the line that held it.

        At once, nobody held it; after the whole interval, its holder was asked to let go, and did
        so right there. In between somebody let go of it on the way, at some later line.
        """
        return late_s < 2 * SHORT_S or late_s >= (SHORT_S if self._short else self._read())
