"""A line of the user's code, with its whole path and the function it stands in."""

from __future__ import annotations

import dis
import linecache
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType, TracebackType

from ostinato.doctor.finding import Place
from ostinato.doctor.raised import words_of
from ostinato.graphs.source_lines import is_users, line_at

_BORDER = os.path.join("doctor", "check", "once.py")
"""Below it runs what is checked, above it whoever asked for the check."""
_RAISES = dis.opmap["RAISE_VARARGS"]


@dataclass(frozen=True, slots=True)
class Line:
    """Where something was called.

    Attributes:
        column: From 1; 0 where it is not known.
        said: "model.py:88 `x.item()`", as refusals name it.
    """

    path: str
    line: int
    column: int
    function: str
    said: str


def users_line() -> Line | None:
    """Return the user's line that runs now; None where no frame of the checked call is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(_BORDER):
        if is_users(frame.f_code.co_filename):
            return _line(frame.f_code, frame.f_lineno, frame.f_lasti)
        frame = frame.f_back
    return None


def lines_above() -> frozenset[str]:
    """Return the lines that run now, as refusals would say them: none of them is checked."""
    said = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        said.add(line_at(frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frozenset(said)


def raised_line(traceback: TracebackType | None) -> Line | None:
    """Return the innermost user's line of a traceback."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_users(code.co_filename):
            found = _line(code, traceback.tb_lineno, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found


@lru_cache(maxsize=4096)
def _line(code: CodeType, line: int, instruction: int) -> Line:
    position = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    column = 0 if position[2] is None else position[2] + 1
    function = code.co_qualname.rpartition("<locals>.")[2]
    return Line(code.co_filename, line, column, function, line_at(code.co_filename, line))


def words_at(error: BaseException) -> str:
    """Return what an error says, and the user's line that it came from where there is one."""
    line = raised_line(error.__traceback__)
    return words_of(error) + (f" at {place_of(line)}" if line else "")


def is_raised_by_user(error: BaseException) -> bool:
    """Whether the user's own code raised it, and not something that the code called."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or not is_users(traceback.tb_frame.f_code.co_filename):
        return False
    # The instruction tells, wherever in its line a `raise` or an `assert` stands.
    return traceback.tb_frame.f_code.co_code[traceback.tb_lasti] == _RAISES


def place_of(line: Line) -> Place:
    """Return the line as findings name it."""
    return Place(line.path, line.line, line.column, line.function, _code(line.said))


def said_place(said: str | None) -> Place | None:
    """Find "model.py:88 `self.last = x`" among the modules that are loaded."""
    head, _, _ = (said or "").partition(" `")
    name, _, number = head.rpartition(":")
    if not name or not number.isdigit():
        return None
    code = _code(said or "")
    for module in list(sys.modules.values()):
        path = getattr(module, "__dict__", {}).get("__file__")  # some load when they are asked
        if not isinstance(path, str) or os.path.basename(path) != name:
            continue
        if code == linecache.getline(path, int(number)).strip():
            return Place(path, int(number), code=code)
    return Place(name, int(number), code=code)


def _code(said: str) -> str:
    return said.partition(" `")[2].removesuffix("`")
