"""Runs that may draw random numbers keep clear of a capture that does.

A CUDA capture of a step that draws takes the device's default generator into its service; torch
then refuses every other thread that draws from it, eagerly or by a replay, for as long as the
capture lasts (milliseconds). So such a capture waits until no such run of ours is under way, and
holds new ones up meanwhile. Code that does not go through a runner cannot be held up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# A run may wait for the very thread that wants to capture; then the recording has to wait its turn.
_LONGEST_WAIT_S = 1.0


class _Draws:
    """Many runs at a time, or one capture."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._is_capturing = False
        self._here = threading.local()

    @contextmanager
    def run(self) -> Iterator[None]:
        depth = getattr(self._here, "depth", 0)
        if depth == 0:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_capturing, _LONGEST_WAIT_S)
                self._running += 1
        self._here.depth = depth + 1
        try:
            yield
        finally:
            self._here.depth = depth
            if depth == 0:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    @contextmanager
    def capture(self) -> Iterator[bool]:
        own = int(getattr(self._here, "depth", 0) > 0)
        with self._changed:
            # Set first, so that runs that come meanwhile cannot keep it waiting.
            self._is_capturing = True
            is_alone = self._changed.wait_for(lambda: self._running == own, _LONGEST_WAIT_S)
        try:
            yield is_alone
        finally:
            with self._changed:
                self._is_capturing = False
                self._changed.notify_all()


_DRAWS = _Draws()
drawing_run = _DRAWS.run
"""Round a run that may draw."""
drawing_capture = _DRAWS.capture
"""Round a capture that draws; says whether the wait for the runs under way was long enough."""
