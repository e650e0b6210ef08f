"""Who interrupted: the user who pressed ^C, or the checked code, which may raise the same error.

A KeyboardInterrupt says nothing of where it comes from. So while code runs that is checked, the one
that follows from a signal is an error of its own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Pressed(KeyboardInterrupt):
    """The user pressed ^C, or another process sent that signal."""


@contextmanager
def interrupts_are_told() -> Iterator[None]:
    """Raise `Pressed` where an interrupt comes from a signal, and put back the handler after.

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

    def press(number: int, frame: FrameType | None) -> None:
        try:
            before(number, frame)
        except KeyboardInterrupt as error:
            raise Pressed from error

    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
