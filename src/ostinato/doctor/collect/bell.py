"""Something to wait for that no program can replace.

`threading.Event` looks up in its module, each time, what it is made of; a program that puts
something of its own there (gevent does) would have our threads wait on that.
"""

from __future__ import annotations

import _thread

_lock = _thread.allocate_lock


class Bell:
    """Rings once, and goes on ringing."""

    def __init__(self) -> None:
        self._silent = _lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Let everybody go who waits, and who comes later."""
        if self._silent.locked():
            try:
                self._silent.release()
            except RuntimeError:  # another thread was faster
                return

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; return whether it rings."""
        rings = self._silent.acquire(True, seconds)
        if rings:
            self.ring()  # for the next one
        return rings
