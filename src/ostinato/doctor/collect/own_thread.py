"""Threads of ours that a program does not meet.

`threading` keeps a list of its threads, and hands it to whoever asks: a program that counts them,
or that puts another library in the place of threads (gevent does), must not find ours in it.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable

from ostinato.doctor.collect.bell import Bell

_begin = _thread.start_new_thread


class OwnThread:
    """A daemon thread that runs one function."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._ended = Bell()

    def start(self) -> None:
        """Begin.

        Raises:
            RuntimeError: the system gives no thread.
        """
        _begin(self._to_the_end, ())

    def join(self, seconds: float) -> None:
        """Wait for its end, for so long at most."""
        self._ended.wait(seconds)

    def _to_the_end(self) -> None:
        try:
            self._run()
        finally:
            self._ended.ring()
