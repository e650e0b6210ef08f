"""Waiting for a program that we started, and passing signals on to it.

A signal that was sent to this process alone is meant for the program, which would have got it
without us. One to the whole group has reached it already.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ostinato.doctor.told_to_end import SIGNALS
from ostinato.doctor.witness import Witness

_PASSED_ON = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
_HEARD = frozenset({*_PASSED_ON, *SIGNALS, signal.SIGCHLD})
_LOOK_S = 1.0


@contextmanager
def signals_held() -> Iterator[set[int]]:
    """Keep what would end this process waiting until it is asked for; give the mask before."""
    before = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)}
    try:
        yield before
    finally:
        # What ended the program too must not end the report that comes now.
        while signal.sigtimedwait(_HEARD, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_for(
    child: subprocess.Popen[bytes], witness: Witness, heard_of: Callable[[int], None]
) -> int:
    """Wait for a program that was started while signals were held; return its status.

    Args:
        witness: Stands in the group of both.
        heard_of: Called with each signal that this process gets, when the program has it too.
    """
    while (returned := child.poll()) is None:
        heard = signal.sigtimedwait(_HEARD, _LOOK_S)
        if heard is None or heard.si_signo == signal.SIGCHLD:
            continue
        if not witness.saw(heard.si_signo):
            child.send_signal(heard.si_signo)
        heard_of(heard.si_signo)
        if heard.si_signo == signal.SIGTSTP:
            _stop_as_the_program_does()
    return returned


def python_that_runs(function: str, *words: str) -> list[str]:
    """Return the command that runs `package.module:function` with these words as its arguments."""
    return [sys.executable, str(Path(__file__).with_name("begin.py")), function, *words]


def as_a_shell_gives_it(returned: int) -> int:
    """Return a status with 128 + the number of a signal in the place of a negative number."""
    return returned if returned >= 0 else 128 - returned


def _stop_as_the_program_does() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    os.kill(os.getpid(), signal.SIGTSTP)  # goes on from here with SIGCONT
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
