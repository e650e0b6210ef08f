"""Keeps our frames out of the tracebacks of a watched program: it has them as it has without us.

What stands between the program and torch is called from the program's own lines, and what runs the
program lies below them. Neither helps whoever reads a traceback.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def hide_our_frames() -> None:
    """Hide them wherever the program shows a traceback or a stack, from here on and for good."""
    summary: Any = traceback.StackSummary
    extract = summary._extract_from_extended_frame_gen.__func__

    def extract_others(
        kind: Any, frames: Iterable[tuple[FrameType, Any]], /, **options: Any
    ) -> Any:
        return extract(kind, (each for each in frames if not _is_ours(each[0])), **options)

    summary._extract_from_extended_frame_gen = classmethod(extract_others)
    show = threading.excepthook

    def show_others(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None:
            without_our_frames(failed.exc_value)
        show(failed)

    # The program may compare the two, to see whether somebody set another.
    threading.excepthook = threading.__excepthook__ = show_others


def without_our_frames(error: BaseException) -> None:
    """Take our frames out of the traceback of an error, and of those that led to it."""
    for each in _led_to(error):
        each.__traceback__ = _without_ours(each.__traceback__)


def _led_to(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    known: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in known:
            continue
        known.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    first = _next_of_others(trace)
    each = first
    while each is not None:
        each.tb_next = _next_of_others(each.tb_next)
        each = each.tb_next
    return first


def _next_of_others(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and _is_ours(trace.tb_frame):
        trace = trace.tb_next
    return trace


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OURS)
