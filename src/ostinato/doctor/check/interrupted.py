"""Who interrupted: the user who pressed ^C, or the checked code, which may raise the same error.

A KeyboardInterrupt says nothing of where it comes from. So while code runs that is checked, the one
that follows from a signal is an error of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]
_leave = os._exit  # which the check replaces while it runs


class Pressed(KeyboardInterrupt):
    """The user pressed ^C, or another process sent that signal."""


@contextmanager
def interrupts_are_told() -> Iterator[None]:
    """Raise `Pressed` where an interrupt comes from a signal, and put back the handler after.

    It is what leaves the block, also where the code in it went on or made another error of it.
    Elsewhere than in the main thread, where no signal is handled, it does nothing; nor where SIGINT
    is ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return

    telling = Telling(before)
    signal.signal(signal.SIGINT, telling)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if telling.told is not None:
            raise telling.told


@contextmanager
def second_press_ends(status: int) -> Iterator[None]:
    """End the process with `status` at the user's second ^C in the block, whatever runs then.

    The first is raised in the checked code, which may swallow it and go on for ever. Nothing is
    cleaned up at the second. A handler that the checked code sets gets both in our place.
    """
    before = _presses.status, _presses.count
    _presses.status, _presses.count = status, 0
    try:
        yield
    finally:
        _presses.status, _presses.count = before


@dataclass(slots=True)
class _Presses:
    """How often ^C was pressed while one command runs; status: None where that ends nothing."""

    status: int | None = None
    count: int = 0


_presses = _Presses()


class Telling:
    """The handler of SIGINT meanwhile; calls the one before it."""

    def __init__(self, before: _Handler) -> None:
        self.before = before
        self.told: Pressed | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # Only Python itself calls from the frame that it names; others hand on what they were told.
        if _presses.status is not None and sys._getframe(1) is frame:
            _presses.count += 1
            if _presses.count > 1:
                _leave(_presses.status)
        try:
            self.before(number, frame)
        except KeyboardInterrupt as error:
            self.told = Pressed()
            raise self.told from error


def raise_if_interrupted(error: BaseException) -> None:
    """Raise `Pressed` if an interrupt by the user led to `error`, whatever the code made of it."""
    waiting: list[BaseException | None] = [error]
    known: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in known:
            continue
        if isinstance(each, Pressed):
            raise Pressed from error
        known.add(id(each))
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
