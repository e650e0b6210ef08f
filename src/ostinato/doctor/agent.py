"""The process that runs a watched program: `ostinato doctor run` starts it, and reads what it left.

The program runs here as it would by itself: as `__main__`, with its own arguments, exit status,
signals and output. What was seen is written when it ends, however Python is told of it, and every
few seconds before, so that a crash or a kill costs the last seconds and not the report.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import sleep
from typing import Any, NoReturn

from ostinato.doctor.collect.own_thread import OwnThread
from ostinato.doctor.evidence import Ending
from ostinato.doctor.hidden_frames import hide_our_frames, without_our_frames
from ostinato.doctor.keeper import Keeper
from ostinato.doctor.running import run_as_main
from ostinato.doctor.told_to_end import ToldToEnd, interrupts_as_python_has_them
from ostinato.doctor.watching import Choices, Watch

_GRACE_S = 5.0  # to end in, before it is killed


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, and where to leave the evidence."""

    program: list[str]
    evidence: str
    choices: dict[str, bool]
    alive: int = -1  # a pipe that ends when the process does that started this one


def main() -> NoReturn:
    """Run the program that the order in the first argument names."""
    order = Order(**json.loads(sys.argv[1]))
    hide_our_frames()
    watch = Watch(" ".join(order.program), Choices(**order.choices))
    watch.start()
    keeper = Keeper(watch, Path(order.evidence))
    keeper.start()
    told = _mind_signals(watch, keeper)
    _mind_parent(watch, keeper, told, order)
    _mind_sudden_exit(keeper)
    _mind_children(watch)
    pid = os.getpid()
    interrupts_as_python_has_them()
    status = _run(order.program, keeper)
    if os.getpid() != pid:  # a fork of the program came to its end
        _leave(status)
    threads = [t for t in threading.enumerate() if t is not threading.main_thread()]
    for thread in threads:
        if not thread.daemon:
            thread.join()  # as the interpreter would, so that what they do is still seen
    keeper.finish(Ending.EXITED if status else Ending.FINISHED, status=status)
    _leave(status)


def _leave(status: int) -> NoReturn:
    sys.exit(status)


def _run(program: list[str], keeper: Keeper) -> int:
    """Run the program and return the status that it would have exited with."""
    pid = os.getpid()
    try:
        run_as_main(program)
    except SystemExit as error:
        return _status(error)
    except KeyboardInterrupt as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would cost the evidence
        keeper.finish(Ending.SIGNALLED, "SIGINT", 130)
        _show(error)
        sys.excepthook = lambda *_: None  # it was shown; what follows ends the process by SIGINT
        raise
    except BaseException as error:  # noqa: BLE001 - the program's own: shown as Python would show it
        _show(error)
        if os.getpid() == pid:
            words = traceback.format_exception_only(error)[-1].strip()
            keeper.finish(Ending.RAISED, words, 1)
        return 1
    return 0


def _status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return _as_the_system_keeps_it(int(error.code))  # True is one
    print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _as_the_system_keeps_it(status: int) -> int:
    """Return the eight bits of a status that a process can leave; Python makes -1 of a huge one."""
    return (status if -(2**63) <= status < 2**63 else -1) & 0xFF


def _show(error: BaseException) -> None:
    """Show an error that the program let through, as Python would: by the hook that is set."""
    without_our_frames(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as another:  # noqa: BLE001 - the hook's own
        without_our_frames(another)
        another.__context__ = None  # nothing is handled any more when Python calls it
        print("Error in sys.excepthook:", file=sys.stderr)  # noqa: T201 - as the interpreter does
        sys.__excepthook__(type(another), another, another.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)  # noqa: T201
        sys.__excepthook__(type(error), error, error.__traceback__)


def _mind_parent(watch: Watch, keeper: Keeper, told: ToldToEnd, order: Order) -> None:
    """Hear of signals, and end the program when nobody is left to report on it."""
    if order.alive < 0:
        return
    os.set_inheritable(order.alive, False)
    pipe = os.fstat(order.alive)

    def look() -> None:
        watch.ignore_this_thread()
        while numbers := _read(order.alive, pipe):
            told.hear(numbers[0])
        if numbers is None:
            return
        keeper.abandon()
        shutil.rmtree(Path(order.evidence).parent, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(_GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)

    OwnThread(look).start()


def _read(file: int, pipe: os.stat_result) -> bytes | None:
    """Read from our pipe; None if the program closed every file that it did not know."""
    try:
        return os.read(file, 1) if os.path.samestat(os.fstat(file), pipe) else None
    except OSError:
        return None


def _mind_children(watch: Watch) -> None:
    """Say in the report that there were processes which nobody watched."""
    start = BaseProcess.start

    def note() -> None:
        watch.problem("the program started processes, and they were not watched")

    def noted(process: BaseProcess) -> None:
        note()  # a spawned process is no fork
        start(process)

    os.register_at_fork(after_in_parent=note)
    BaseProcess.start = noted  # type: ignore[method-assign, assignment]


def _mind_signals(watch: Watch, keeper: Keeper) -> ToldToEnd:
    """Write the evidence before a signal ends the program that does not handle it."""

    def write(number: int) -> None:
        keeper.finish(Ending.SIGNALLED, signal.Signals(number).name, 128 + number)

    told = ToldToEnd(write, watch.ignore_this_thread)
    told.start()
    return told


def _mind_sudden_exit(keeper: Keeper) -> None:
    """Write the evidence before what runs nothing else: `os._exit`, `os.abort`, `os.exec*`."""
    leave, crash = os._exit, os.abort

    def _exit(status: int) -> NoReturn:
        keeper.finish(Ending.EXITED, "os._exit", _as_the_system_keeps_it(status))
        leave(status)

    def abort() -> NoReturn:
        keeper.finish(Ending.SIGNALLED, signal.SIGABRT.name, 128 + signal.SIGABRT)
        crash()

    os._exit, os.abort = _exit, abort
    for name in ("execv", "execve"):  # all others of their kind come down to these
        setattr(os, name, _saving_first(getattr(os, name), keeper))


def _saving_first(replace_program: Any, keeper: Keeper) -> Any:
    def execute(*args: Any) -> None:
        keeper.save(Ending.REPLACED)
        replace_program(*args)

    return execute
