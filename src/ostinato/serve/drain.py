"""Who is being answered, and how a front end stops without cutting anybody off unsaid.

A stop has three parts: nobody new is let in; those who are being answered get a bounded time; who
is still there then is told why his answer ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ostinato.serve.wire import Problem

if TYPE_CHECKING:
    Cut = Callable[[Problem], None]

NOT_ALONE = "OST6024"
_LAST_WORDS_S = 1.0
"""After the bound, to send the last words in; of the grace that a process has to end."""


class Drain:
    """Of one front end; used in one event loop.

    Attributes:
        is_draining: Whether nobody new is let in.
    """

    def __init__(self) -> None:
        self.is_draining = False
        self._open = 0
        self._cuts: dict[object, Cut] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def open_requests(self) -> int:
        """How many are being answered."""
        return self._open

    def enter(self) -> None:
        """Somebody is being answered."""
        self._open += 1
        self._empty.clear()

    def leave(self) -> None:
        """He has been."""
        self._open -= 1
        if not self._open:
            self._empty.set()

    def watch(self, stream: object, cut: Cut) -> None:
        """Have `cut` called when the time is up before `stream` has ended."""
        self._cuts[stream] = cut

    def unwatch(self, stream: object) -> None:
        """It has ended."""
        self._cuts.pop(stream, None)

    async def run(self, bound_s: float) -> bool:
        """Let nobody in, and wait until everybody has been answered.

        Args:
            bound_s: How long answers may go on. Whoever does not end in it is told why, which
                takes at most a second more.

        Returns:
            Whether all answers ended by themselves.
        """
        self.is_draining = True
        if await self._wait_empty(bound_s):
            return True
        for cut in list(self._cuts.values()):
            cut(draining(bound_s))
        await self._wait_empty(_LAST_WORDS_S)
        return False

    async def _wait_empty(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            return False
        return True


def draining(bound_s: float) -> Problem:
    """Return what is told to somebody whose answer had not ended in time."""
    return Problem(
        "OST6022",
        f"the server is stopping and this answer did not end within {bound_s:g} s",
        "send the request again: another server, or the next one, will answer it",
        "down",
        retry_s=5.0,
    )


def closed() -> Problem:
    """Return what is told to somebody who comes while the server is stopping."""
    return Problem(
        "OST6023",
        "the server is stopping and takes no new requests",
        "send the request to another server, or again in a few seconds",
        "down",
        retry_s=5.0,
    )


def company() -> Problem:
    """Return what is told to a request that was to be answered alone, and is not the only one."""
    return Problem(
        NOT_ALONE, "another request is being answered", "send it again later", "full", retry_s=1.0
    )
