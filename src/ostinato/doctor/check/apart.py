"""A check in a process of its own, so that there is an answer whatever becomes of that process.

Python can be kept from ending its process, and C code cannot: it crashes, or calls `exit`, whose
status may read like a verdict; a timer's signal ends it, and so does the kernel where memory is
short. So the verdict comes from this process, in which nothing that is checked runs.

Needs no torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.doctor.told_to_end import SIGNALS
from ostinato.doctor.waiting import python_that_runs, signals_held, wait_for
from ostinato.doctor.witness import Witness
from ostinato.errors import UsageError

EXIT_OPEN = 3
_CHILD = "ostinato.doctor.check.answering:main"
_BY_C = "leave out of what is checked the C code that calls exit or _exit, or check a smaller part"
_SENT = "leave out of what is checked what sends this signal, or check a smaller part"
_KILLED = (
    "check a smaller model: the kernel kills where memory is short (what the factory makes on "
    "`cuda` takes none), or leave out what sends this signal"
)
_BY_SIGNAL: tuple[tuple[tuple[int, ...], str], ...] = (
    (
        (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL),
        "C code crashed: look for its line in the stack above, and run that line alone first",
    ),
    (
        (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF),
        "set no timer (signal.alarm, signal.setitimer) in what is checked, or handle its signal",
    ),
    ((signal.SIGKILL,), _KILLED),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the command says.

    Attributes:
        status: Its exit status.
        said: For stdout: the report; empty if there is none.
        error: For stderr: why there is none.
    """

    status: int
    said: str = ""
    error: str = ""


def answered_apart(target: str, *, as_json: bool, gpus: int) -> Answer:
    """Check in another process, wait for it, and return its answer, or that it gave none.

    The user's first ^C is raised in the code that is checked, and the second ends it at once.
    """
    with signals_held() as mask, tempfile.TemporaryDirectory(prefix="ostinato-check-") as folder:
        path = Path(folder) / "answer.json"
        asked = {"target": target, "as_json": as_json, "gpus": gpus}
        returned, heard = _run({"answer": str(path), "argv": sys.argv, "asked": asked}, mask)
        with suppress(FileNotFoundError):
            return Answer(**json.loads(path.read_text(encoding="utf-8")))
    if heard:
        return Answer(128 + heard[-1])
    return Answer(EXIT_OPEN, error=f"{ended_without_an_answer(returned)}\n")


def _run(order: dict[str, Any], mask: set[int]) -> tuple[int, list[int]]:
    """Run the check; return how it ended, and which signals meant to end it came meanwhile."""
    pressed, ours = os.pipe()
    order = {**order, "pressed": pressed, "is_deaf": signal.SIGINT in mask}
    heard: list[int] = []
    try:
        child = subprocess.Popen(
            python_that_runs(_CHILD, json.dumps(order)),
            stdout=_stderr(),  # C code may write there, and the report has ours for itself
            pass_fds=(pressed,),
            # It hears of interrupts when it can tell who interrupted.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, {*mask, signal.SIGINT}),
        )

        def hear(number: int) -> None:
            if number not in (signal.SIGINT, *SIGNALS):
                return
            if number == signal.SIGINT and number in heard:
                child.kill()
            heard.append(number)
            if number == signal.SIGINT:
                with suppress(OSError):  # the checked code may have closed the other end
                    os.write(ours, b"^")

        with Witness() as witness:
            return wait_for(child, witness, hear), heard
    finally:
        os.close(pressed)
        os.close(ours)


def _stderr() -> int:
    """Return where errors go; nowhere, if that is closed."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def ended_without_an_answer(returned: int) -> UsageError:
    """Say how the process ended in which a check was made, and what to do about it.

    Args:
        returned: As `subprocess` gives it: below 0, the number of a signal.
    """
    if returned >= 0:
        how, remedy = f"left with status {returned}", _BY_C
    else:
        how = f"was ended by {_name_of(-returned)}"
        remedy = next((words for kinds, words in _BY_SIGNAL if -returned in kinds), _SENT)
    return UsageError(
        f"nothing is known of the call: the process in which it was checked {how}",
        code="OST7056",
        remedy=remedy,
    )


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those for real time
        return f"signal {number}"
