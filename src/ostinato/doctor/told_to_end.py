"""Write the evidence when the program is told to end by a signal, and then let it end that way.

Python runs a handler between two lines of the main thread. A main thread in a long call, or in a
deadlock, would then not end where it ended at once without us; and one that was interrupted with a
lock in hand must not be the one that writes. So a thread of ours writes: it hears of a signal from
the handler, or from the process that passed the signal on, where the handler does not come to run.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from ostinato.doctor.collect.bell import Bell
from ostinato.doctor.collect.own_thread import OwnThread

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_HANDLED_S = 2.0  # after which the main thread is taken to be stuck
_WRITTEN_S = 5.0
_LOOK_S = 0.02
_A_DAY_S = 86400.0


def interrupts_as_python_has_them() -> None:
    """Let ^C raise KeyboardInterrupt from now on, as at Python's start; see `begin.py`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class ToldToEnd:
    """Stands before the signals that would end the program.

    Args:
        write: Called once with the signal's number, in a thread of ours.
        begin: Called in that thread before anything else.
    """

    def __init__(self, write: Callable[[int], None], begin: Callable[[], None]) -> None:
        self._write = write
        self._begin = begin
        self._pid = os.getpid()
        self._handled: list[int] = []
        self._asked, self._written = Bell(), Bell()

    def start(self) -> None:
        """Take the signals whose default is still in force; call it in the main thread."""
        OwnThread(self._run).start()
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._handle)

    def hear(self, number: int) -> None:
        """Hear in a thread of ours that a signal was sent; it may be the program's to handle."""
        until = monotonic() + _HANDLED_S
        while signal.getsignal(number) == self._handle and not self._handled:
            if _is_held_back(number):  # for a thread of the program that waits for it
                return
            if monotonic() > until:
                self._end(number)
            sleep(_LOOK_S)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self._handled.append(number)
            self._asked.ring()
            self._written.wait(_WRITTEN_S)
        _end_by(number)

    def _run(self) -> None:
        self._begin()
        while not self._asked.wait(_A_DAY_S):
            pass
        self._end(self._handled[0])

    def _end(self, number: int) -> None:
        self._write(number)
        self._written.ring()
        _end_by(number)


def _is_held_back(number: int) -> bool:
    """Whether the main thread blocks a signal."""
    lines = Path(f"/proc/self/task/{os.getpid()}/status").read_text().splitlines()
    blocked = next((int(line.split()[1], 16) for line in lines if line.startswith("SigBlk")), 0)
    return bool(blocked >> (number - 1) & 1)


def _end_by(number: int) -> None:
    """End this process by a signal, from any thread."""
    default = ctypes.PyDLL(None).signal
    default.argtypes, default.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    default(number, None)
    os.kill(os.getpid(), number)
