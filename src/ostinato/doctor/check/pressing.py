"""The handlers of ^C that stand one before the other in a check, and how they hear of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from time import sleep

from ostinato.doctor.check.interrupted import Telling
from ostinato.doctor.collect.own_thread import OwnThread
from ostinato.graphs.interrupts import handler_behind

_AGAIN_S = 0.05
_send = signal.pthread_kill  # which the check replaces while it runs


def handlers_of_interrupts() -> Iterator[object]:
    """Yield the handler of SIGINT, and those behind it, down to the one that the program has."""
    handler: object = signal.getsignal(signal.SIGINT)
    while True:
        yield handler
        if isinstance(handler, Telling):
            handler = handler.before
        elif (behind := handler_behind(handler, signal.SIGINT)) is not handler:
            handler = behind
        else:
            return


class Pressing:
    """Presses ^C again until it is taken notice of.

    A signal that comes while the runtime's own code is at work waits for the next call of torch,
    and the code that is checked may make none: it loops, or waits for something. It may, too, have
    a handler of its own, which hears each press once.

    Args:
        pipe: From which a byte can be read for each ^C that this process has got.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._main = threading.main_thread().ident or 0

    def start(self) -> None:
        """Begin, in a thread of ours."""
        OwnThread(self.run).start()

    def run(self) -> None:
        """Press until the pipe is closed."""
        with suppress(OSError):  # the checked code closed it
            while os.read(self._pipe, 1):
                sleep(_AGAIN_S)
                while _is_unheard():
                    _send(self._main, signal.SIGINT)
                    sleep(_AGAIN_S)


def _is_unheard() -> bool:
    """Whether handlers of ours stand ready for ^C and none has raised it."""
    ours = [each for each in handlers_of_interrupts() if isinstance(each, Telling)]
    return bool(ours) and all(each.told is None for each in ours)
