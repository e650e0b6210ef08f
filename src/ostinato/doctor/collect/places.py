"""Which line of the watched program is running, as a `Place`.

The line is that of the innermost frame which belongs neither to torch nor to Ostinato nor to
Python's own library. A place is worked out once for each instruction, because it is asked for while
the program runs.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from zipimport import zipimporter

from ostinato.doctor.finding import Place

_OSTINATO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_COLLECT = os.path.dirname(os.path.abspath(__file__)) + os.sep  # what stands in between
_STANDARD = os.path.abspath(sysconfig.get_path("stdlib")) + os.sep
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_TORCH = f"{_INSTALLED}torch{os.sep}"
_LONGEST_CODE = 100
_DEEPEST = 64

Key = tuple[CodeType, int, int]
"""A frame's code, its line and its instruction."""

_BLOCKING = re.compile(
    r"\b(sleep|recv\w*|accept|select|poll|acquire|wait\w*|synchronize|fsync|flush)\("
)
_WAITING_FILES = (
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/socket.py",
    "/ssl.py",
    "/subprocess.py",
    "/collect/locks.py",  # our own wrapper of a lock waits there
)


@lru_cache(maxsize=4096)
def is_users(path: str) -> bool:
    """Whether a file belongs to the program, or to a library that is neither torch nor Python."""
    if path.startswith(("<frozen", "<ostinato", _OSTINATO)) or _TORCH in path:
        return False
    return not path.startswith(_STANDARD) or _INSTALLED in path


@lru_cache(maxsize=4096)
def is_own_code(path: str) -> bool:
    """Whether a file is the program's own: no installed library at all."""
    return is_users(path) and _INSTALLED not in path and not path.startswith("<")


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the program at or above `frame`: its own, else a library's."""
    library: FrameType | None = None
    while frame is not None:
        path = frame.f_code.co_filename
        if is_own_code(path):
            return frame
        if library is None and is_users(path):
            library = frame
        frame = frame.f_back
    return library


def librarys_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame at or above `frame` that is neither torch's nor Python's."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_by_ostinato(frame: FrameType | None) -> bool:
    """Whether Ostinato is what called torch: its own work is no finding in the program."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OSTINATO) and not path.startswith(_COLLECT):
            return True
        if is_users(path):
            return False
        frame = frame.f_back
    return False


def is_blocking(frame: FrameType, unread: set[str]) -> bool:
    """Whether the line that runs is a call that waits for something other than the GIL.

    Args:
        unread: Gets the path of a file that would have to be read to know: reading gives the GIL
            away, so that is left to a better moment, and the answer is no.
    """
    path = frame.f_code.co_filename
    if path.endswith(_WAITING_FILES):
        return True
    if not is_users(path):
        return False
    if path not in linecache.cache:
        unread.add(path)
        return False
    return _BLOCKING.search(bare_place(frame).code) is not None


def here(depth: int = 1) -> Place | None:
    """Return the program's line that runs now; None if no frame is the program's."""
    frame = users_frame(sys._getframe(depth + 1))
    return None if frame is None else place_of(frame)


def place_of(frame: FrameType, inner: FrameType | None = None) -> Place:
    """Return a frame's line with the calls that led there, and on to `inner` where it is given."""
    place = bare_place(frame)
    return Place(
        path=place.path,
        line=place.line,
        column=place.column,
        function=place.function,
        code=place.code,
        stack=tuple(reversed([f"{p}:{line} {name}" for p, line, name in _calls(inner or frame)])),
    )


def key_of(frame: FrameType) -> Key:
    """Return what `place_by` makes a place of, without reading any file."""
    line: int | None = frame.f_lineno
    _let_be_read(frame)
    return frame.f_code, line or frame.f_code.co_firstlineno, frame.f_lasti


def place_by(key: Key) -> Place:
    """Return the place of a key."""
    return _bare_place(*key)


def bare_place(frame: FrameType) -> Place:
    """Return a frame's line without the calls that led there."""
    line: int | None = frame.f_lineno  # None between two lines, whatever its type says
    _let_be_read(frame)
    return _bare_place(frame.f_code, line or frame.f_code.co_firstlineno, frame.f_lasti)


def _let_be_read(frame: FrameType) -> None:
    """Have the source of a frame found later, where it lies in an archive."""
    if isinstance(frame.f_globals.get("__loader__"), zipimporter):
        linecache.lazycache(frame.f_code.co_filename, frame.f_globals)


def place_at(code: CodeType, line: int) -> Place:
    """Return a line of `code`; its column is not known."""
    return _bare_place(code, line, -1)


def _calls(frame: FrameType | None) -> Iterator[tuple[str, int, str]]:
    depth = 0
    while frame is not None and depth < _DEEPEST:
        path = frame.f_code.co_filename
        if is_users(path):
            yield path, frame.f_lineno, frame.f_code.co_qualname
            depth += 1
        frame = frame.f_back


@lru_cache(maxsize=8192)
def _bare_place(code: CodeType, line: int, instruction: int) -> Place:
    text = linecache.getline(code.co_filename, line).strip()
    if len(text) > _LONGEST_CODE:
        text = text[: _LONGEST_CODE - 1] + "…"
    return Place(
        path=code.co_filename,
        line=line,
        column=_column(code, line, instruction),
        function=code.co_qualname,
        code=text,
    )


def _column(code: CodeType, line: int, instruction: int) -> int:
    """Return the column, from 1, of the expression that an instruction is part of."""
    for index, (first, _, column, _) in enumerate(code.co_positions()):
        if index * 2 == instruction:
            return column + 1 if first == line and column is not None else 0
    return 0
