"""Who waits for something to change, in threads and event loops, and how they are woken.

The engine tells of every piece of every answer, and mostly nobody waits for that answer just then:
to tell is to look into an empty list, without a lock.

No call is lost. Who waits signs up first and looks afterwards; who tells has made the change before
it looks who has signed up. So one of the two sees the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic

from ostinato.llm.event_loops import EventLoops


class Waiters:
    """Those who wait for one thing.

    Args:
        loops: Shared with others who tell at the same time; None: with nobody.
    """

    __slots__ = ("_calls", "_loops")

    def __init__(self, loops: EventLoops | None = None) -> None:
        self._loops = loops or EventLoops()
        self._calls: list[Callable[[], object]] = []  # a deque takes ten times the memory

    def tell(self) -> None:
        """Have all look again who wait; after the change, from any thread. Never waits."""
        if self._calls:
            for call in self._calls[:]:  # not those who sign up now: they look by themselves
                # Called first: if this thread is interrupted in between, the next one calls again.
                with suppress(RuntimeError):  # another thread has called too
                    call()
                with suppress(ValueError):
                    self._calls.remove(call)

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait in a thread until `is_there`; return False if it is not after `timeout_s`."""
        until_s = None if timeout_s is None else monotonic() + timeout_s
        while not is_there():
            # Not an event: to set one takes a lock, which this thread, interrupted, might hold.
            called, is_called = threading.Lock(), False
            called.acquire()
            self._calls.append(called.release)
            try:
                if is_there():
                    return True
                left_s = -1 if until_s is None else max(0.0, until_s - monotonic())
                is_called = called.acquire(timeout=left_s)
                if not is_called:
                    return is_there()
            finally:
                if not is_called:
                    self._sign_off(called.release)
        return True

    async def wait_in_loop(self, is_there: Callable[[], bool]) -> None:
        """Wait in an event loop until `is_there`."""
        loop = asyncio.get_running_loop()
        while not is_there():
            called: asyncio.Future[None] = loop.create_future()
            call = partial(self._loops.calls_of(loop).wake, called)
            self._calls.append(call)
            try:
                if is_there():
                    return
                await called
            finally:
                if not called.done() or called.cancelled():
                    self._sign_off(call)

    def _sign_off(self, call: Callable[[], object]) -> None:
        with suppress(ValueError):  # it is being called just now, and nobody hears it
            self._calls.remove(call)
