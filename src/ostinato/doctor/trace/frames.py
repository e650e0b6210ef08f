"""The user's function in which each wait happened, from the Python frames of a trace.

A trace recorded with stacks has an event for each call of a Python function: its file, the line at
which the function begins, its name. The innermost one round a wait that is neither torch's nor
Python's own is the place. A trace has millions of them, so only the waits are kept.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from ostinato.doctor.finding import Place
from ostinato.doctor.trace.timeline import WaitSeen

_FRAME = re.compile(r"^(?P<path>.+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_LIBRARIES = ("site-packages/", "dist-packages/", "/torch/")


class Frames:
    """Gives waits their places as frames come by."""

    def __init__(self, waits: Sequence[WaitSeen]) -> None:
        self.seen = False
        self._waits: dict[str, list[WaitSeen]] = {}
        for wait in sorted(waits, key=lambda wait: wait.at_us):
            self._waits.setdefault(wait.thread, []).append(wait)
        self._starts = {
            thread: [wait.at_us for wait in waits] for thread, waits in self._waits.items()
        }

    def take(self, event: dict[str, Any]) -> None:
        """Take one frame."""
        self.seen = True
        thread = f"{event.get('pid')}/{event.get('tid')}"
        waits = self._waits.get(thread)
        at, us = event.get("ts"), event.get("dur")
        if not waits or not isinstance(at, int | float) or not isinstance(us, int | float):
            return
        index = bisect_left(self._starts[thread], at)
        place: Place | None = None
        while index < len(waits) and waits[index].at_us <= at + us:
            if waits[index].place_at_us < at:  # a frame inside the one known so far
                place = place or users_place(str(event.get("name", "")))
                if place is None:
                    return
                waits[index].place, waits[index].place_at_us = place, at
            index += 1


def users_place(name: str) -> Place | None:
    """Read "model.py(12): forward"; None for torch's frames, Python's own and built-in calls."""
    found = _FRAME.match(name)
    if found is None:
        return None
    path = found["path"].replace("\\", "/")
    first = path.lstrip("./").partition("/")[0].removesuffix(".py")
    is_relative = not path.startswith("/")
    # torch shortens paths below the folders that Python imports from.
    is_library = is_relative and (first == "torch" or first in sys.stdlib_module_names)
    if is_library or any(part in path for part in _LIBRARIES) or "/lib/python3" in path:
        return None
    return Place(found["path"], int(found["line"]), function=found["function"])
