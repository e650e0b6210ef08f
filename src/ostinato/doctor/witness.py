"""Whether a signal was sent to this process alone, or to its whole group.

Who waits for a program passes on the signals that are meant for it. But a signal to the group
(Ctrl-C at a terminal, `killpg` by a supervisor) has reached the program already, and must not come
twice. Nothing in a signal tells the two apart; so a process that does nothing stands in the group,
keeps every signal waiting, and the kernel shows what waits for it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import NoReturn, Self

_SETTLED_S = 0.03  # a signal to a group reaches its members one after the other


class Witness:
    """A process of the same group, for the length of a `with` block."""

    def __init__(self) -> None:
        self._pid = 0
        self._end = -1

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._dismiss()

    def saw(self, number: int) -> bool:
        """Return whether a signal that this process has just got went to the whole group."""
        sleep(_SETTLED_S)
        was_seen = bool(self._waiting() >> (number - 1) & 1)
        if was_seen:  # one that waits would hide the next of its kind
            self._dismiss()
            self._begin()
        return was_seen

    def _begin(self) -> None:
        end, self._end = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._pid = os.fork()
        if self._pid == 0:
            _stand(end, self._end)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(end)

    def _dismiss(self) -> None:
        os.close(self._end)
        os.waitpid(self._pid, 0)

    def _waiting(self) -> int:
        try:
            lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        except OSError:
            return 0
        return next((int(s.split()[1], 16) for s in lines if s.startswith("ShdPnd")), 0)


def _stand(end: int, others_end: int) -> NoReturn:
    """Do nothing until the process that started this one lets go of its end, or ends."""
    os.close(others_end)
    while True:
        try:
            os.read(end, 1)
        except InterruptedError:
            continue
        os._exit(0)
