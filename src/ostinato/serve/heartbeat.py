"""How the supervisor knows that the engine's process still runs at all.

A library in C that hangs and keeps Python's lock stops every thread of its process: that can
neither end itself nor say a word. So the process touches a file several times a second while it is
well, and whoever started it looks at the file.
"""

from __future__ import annotations

from pathlib import Path


def beat(path: Path) -> None:
    """Say that this process runs."""
    path.touch()


class Heartbeat:
    """Of one process, as another one sees it.

    Args:
        path: What it touches.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: int | None = None
        self._since = 0.0

    def silent_s(self, now: float) -> float:
        """Return how long it has not been seen to beat; 0 before its first beat.

        Args:
            now: On a clock that only goes forward; the file's own times are compared for equality
                alone, for somebody may set the system's clock.
        """
        try:
            seen = self._path.stat().st_mtime_ns
        except OSError:  # it is being loaded, which may take as long as it likes
            return 0.0
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since
