"""The first step after a rest, which many requests at once must not hold up.

A thread that lets requests in runs Python alone, and keeps the interpreter's lock for its whole
switch interval: some two hundred requests. The engine's thread, called by the first of them, waits
for that lock meanwhile, and so does the device. Therefore, once enough have come for a step that is
worth it, whoever brings the next one waits until the step is queued, and goes on while the device
works.

That is worth it where the device works on those for longer than the others take to be handed in. On
an H200 it is not for SmolLM2-135M, whose 256 prompts came to their first tokens 2 ms later so.
"""

from __future__ import annotations

from ostinato.llm.waiters import Waiters

_TOGETHER = 32
"""Requests that come first: handing them in takes a millisecond, and planning them another."""
_MOST_S = 0.005
"""What one of those behind them waits at the most: as long as the lock might be kept from it."""


class Beginning:
    """How many have come since the engine's thread was last at rest, and whether it has begun.

    Args:
        is_worth: Whether anybody is to wait at all.
    """

    def __init__(self, *, is_worth: bool = True) -> None:
        self._is_worth = self._is_due = is_worth
        self._come = 0
        self._await_begun = Waiters()

    def give_way(self) -> None:
        """Wait for the step to begin, if many have come before; call it before one more is let in.

        Nobody waits twice, and never for a step itself, were it to last seconds.
        """
        if not self._is_due:
            return
        self._come += 1  # two threads may count as one: it is no matter
        if self._come > _TOGETHER:
            self._await_begun.wait_for(lambda: not self._is_due, _MOST_S)
            self._is_due = False

    def note_step(self) -> None:
        """Note that a step has been queued; in the engine's thread."""
        if self._is_due:
            self._is_due = False
            self._await_begun.tell()

    def note_rest(self) -> None:
        """Note that nobody is left; in the engine's thread."""
        self._is_due, self._come = self._is_worth, 0
