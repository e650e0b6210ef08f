"""Who interrupted: the user who pressed ^C, or the checked code, which may raise the same error.

A KeyboardInterrupt says nothing of where it comes from. So while code runs that is checked, the one
that follows from a signal is an error of its own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]


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


class Telling:
    """The handler of SIGINT meanwhile; calls the one before it."""

    def __init__(self, before: _Handler) -> None:
        self.before = before
        self.told: Pressed | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
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
