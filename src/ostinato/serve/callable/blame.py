"""What somebody else's code raised, in one line: the error's type, its words, and where it was.

The words are for who serves the code. Clients are not told: they may hold paths or another's data.
"""

from __future__ import annotations

import importlib
import site
import sysconfig
import traceback
from functools import cache
from pathlib import Path

_MOST_LETTERS = 300
_PASSED_THROUGH = ("<frozen ", *importlib.__path__, str(Path(__file__).parents[2]))


def words_of(error: BaseException) -> str:
    """Return the error's type and words, and the user's line that it came from, if there is one."""
    if isinstance(error, SyntaxError):
        words, place = error.msg, f"{error.filename}:{error.lineno}"
    else:
        words, place = " ".join(str(error).split()), _place(error)
    if len(words) > _MOST_LETTERS:
        words = words[:_MOST_LETTERS] + "..."
    said = ": ".join(filter(None, (type(error).__name__, words)))
    return f"{said}, at {place}" if place else said


def traceback_of(error: BaseException) -> str:
    """Return the traceback from where our code called theirs; empty where it never did."""
    frames = _frames(error)
    if not frames:
        return ""
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    return "Traceback (most recent call last):\n" + "".join(lines)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PASSED_THROUGH)
    ]


def _place(error: BaseException) -> str:
    """Return the innermost line outside of libraries, or else the outermost that is not ours."""
    frames = _frames(error)
    own = [frame for frame in frames if not frame.filename.startswith(_libraries())]
    found = own[-1] if own else next(iter(frames), None)
    return "" if found is None else f"{found.filename}:{found.lineno} in {found.name}"


@cache
def _libraries() -> tuple[str, ...]:
    paths = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return tuple(sorted(paths - {sysconfig.get_path("data"), sysconfig.get_path("scripts")}))
