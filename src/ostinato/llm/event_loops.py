"""The event loops in which somebody waits for an engine, each called once however many wait in it.

A launch brings tokens to hundreds of streams, and often all of their readers are tasks of one event
loop. A call into it from another thread takes a lock and a write to a socket: made for each reader,
these calls would cost more than to read the launch.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from weakref import WeakKeyDictionary, ref


class EventLoops:
    """Those of one engine."""

    def __init__(self) -> None:
        self._calls: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def calls_of(self, loop: asyncio.AbstractEventLoop) -> LoopCalls:
        """Return what calls into an event loop: the same as long as the loop lives."""
        with self._lock:
            calls = self._calls.get(loop)
            if calls is None:
                calls = self._calls[loop] = LoopCalls(loop)
            return calls


class LoopCalls:
    """The futures of one event loop that have their result, and do not know it yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # the loop is the key under which this is kept
        self._due: deque[asyncio.Future[None]] = deque()
        self._is_called = False

    def wake(self, waiting: asyncio.Future[None]) -> None:
        """Have `waiting` get its result in its event loop; from any thread. Never waits."""
        self._due.append(waiting)
        loop = self._loop()
        if self._is_called or loop is None:
            return
        self._is_called = True
        try:
            loop.call_soon_threadsafe(self._wake_all)
        except BaseException as error:
            self._is_called = False
            if not isinstance(error, RuntimeError):
                raise
            self._due.clear()  # the event loop is closed: nobody waits in it any more

    def _wake_all(self) -> None:
        # First: whoever comes too late to be seen below calls again.
        self._is_called = False
        while self._due:
            waiting = self._due.popleft()
            if not waiting.done():
                waiting.set_result(None)
