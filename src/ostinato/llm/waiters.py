"""Who waits for something to change, in threads and event loops, and how they are woken.

The engine tells of every piece of every answer, and mostly nobody waits for that answer just then:
to tell is to look into an empty list, without a lock.

No call is lost. Who waits signs up first and looks afterwards; who tells has made the change before
it looks who has signed up. So one of the two sees the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic


class Waiters:
    """Those who wait for one thing."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def tell(self) -> None:
        """Have all look again who wait; after the change, from any thread. Never waits."""
        if self._calls:
            for _ in range(len(self._calls)):  # not those who sign up now: they look by themselves
                with suppress(IndexError):  # another thread tells them too
                    self._calls.popleft()()

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait in a thread until `is_there`; return False if it is not after `timeout_s`."""
        until_s = None if timeout_s is None else monotonic() + timeout_s
        while not is_there():
            called = threading.Event()
            self._calls.append(called.set)
            try:
                if is_there():
                    return True
                left_s = None if until_s is None else max(0.0, until_s - monotonic())
                if not called.wait(left_s):
                    return is_there()
            finally:
                if not called.is_set():
                    self._sign_off(called.set)
        return True

    async def wait_in_loop(self, is_there: Callable[[], bool]) -> None:
        """Wait in an event loop until `is_there`."""
        loop = asyncio.get_running_loop()
        while not is_there():
            called: asyncio.Future[None] = loop.create_future()
            call = partial(_call, loop, called)
            self._calls.append(call)
            try:
                if is_there():
                    return
                await called
            finally:
                if not called.done() or called.cancelled():
                    self._sign_off(call)

    def _sign_off(self, call: Callable[[], object]) -> None:
        # Where it is being called just now, or the list changes meanwhile, nobody hears one call.
        with suppress(ValueError, IndexError):
            self._calls.remove(call)


def _call(loop: asyncio.AbstractEventLoop, called: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the event loop is closed: nobody waits in it any more
        loop.call_soon_threadsafe(_set, called)


def _set(called: asyncio.Future[None]) -> None:
    if not called.done():
        called.set_result(None)
