"""How long the event loop and Python's lock make work wait.

A front end that computes instead of waiting shows here before it shows in anybody's latency. Both
watches sleep for a moment and look how late they woke.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep

_EVERY_S = 0.1
_TIMER_SLACK_S = 0.0001
"""Linux wakes a sleeper up to 50 us late, and the wake-up itself takes a while."""


async def watch_loop(tell: Callable[[float], None], every_s: float = _EVERY_S) -> None:
    """Tell, for as long as the task lives, how late the event loop wakes it."""
    while True:
        began_s = perf_counter()  # uvloop's own clock counts milliseconds
        await asyncio.sleep(every_s)
        tell(max(0.0, perf_counter() - began_s - every_s))


class GilWatch:
    """A thread that sleeps, wakes, and looks how long Python's lock kept it from going on.

    What it waited for a core is taken off, where the system tells (Linux): only the lock is left.

    Args:
        tell: Takes the seconds, in the watch's own thread.
    """

    def __init__(self, tell: Callable[[float], None], every_s: float = _EVERY_S) -> None:
        self._tell = tell
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ostinato-gil-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        queued = _QueueWait()
        while not self._is_over.is_set():
            queued_s, began_s = queued.read(), perf_counter()
            # A plain sleep: it gives the lock away and takes it back once, where a wait on an
            # event would do so several times.
            sleep(self._every_s)
            late_s = perf_counter() - began_s - self._every_s - _TIMER_SLACK_S
            self._tell(max(0.0, late_s - (queued.read() - queued_s)))


class _QueueWait:
    """Seconds that the calling thread was ready and had no core, ever; 0 where nobody tells."""

    def __init__(self) -> None:
        self._file = Path("/proc/thread-self/schedstat")
        self._is_told = self._file.is_file()

    def read(self) -> float:
        if not self._is_told:
            return 0.0
        return int(self._file.read_text().split()[1]) / 1e9
