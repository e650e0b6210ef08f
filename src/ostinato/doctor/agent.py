"""The process that runs a watched program: `ostinato doctor run` starts it, and reads what it left.

The program runs here as it would by itself: as `__main__`, with its own arguments, exit status,
signals and output. What was seen is written when it ends, however Python is told of it, and every
few seconds before, so that a crash or a kill costs the last seconds and not the report.
"""

from __future__ import annotations

import io
import json
import os
import pkgutil
import shutil
import signal
import sys
import threading
import traceback
import types
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import sleep
from typing import Any, NoReturn

from ostinato.doctor.collect.own_thread import OwnThread
from ostinato.doctor.evidence import Ending
from ostinato.doctor.keeper import Keeper
from ostinato.doctor.told_to_end import ToldToEnd
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
    watch = Watch(" ".join(order.program), Choices(**order.choices))
    watch.start()
    keeper = Keeper(watch, Path(order.evidence))
    keeper.start()
    told = _mind_signals(watch, keeper)
    _mind_parent(watch, keeper, told, order)
    _mind_sudden_exit(keeper)
    _mind_children(watch)
    pid = os.getpid()
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
        code, module = _load(program)
        sys.modules["__main__"] = module
        exec(code, module.__dict__)
    except SystemExit as error:
        return _status(error)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would cost the evidence
        keeper.finish(Ending.SIGNALLED, "SIGINT", 130)
        raise
    except BaseException as error:  # noqa: BLE001 - the program's own: shown as Python would show it
        trace = _without_us(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if os.getpid() == pid:
            words = traceback.format_exception_only(error)[-1].strip()
            keeper.finish(Ending.RAISED, words, 1)
        return 1
    return 0


def _load(program: list[str]) -> tuple[types.CodeType, types.ModuleType]:
    """Return the program's code and the module it runs as."""
    if program[0] == "-m":
        return _load_module(program[1:])
    path = program[0]
    sys.argv = list(program)
    importer = pkgutil.get_importer(path)
    if importer is not None:  # a folder or an archive: its __main__
        sys.path.insert(0, path)
        return _main_of(importer.find_spec("__main__"), path)
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    with io.open_code(os.path.abspath(path)) as file:
        code = pkgutil.read_code(file)  # None unless it is compiled already
    return code or compile(Path(path).read_bytes(), os.path.abspath(path), "exec"), module


def _load_module(words: list[str]) -> tuple[types.CodeType, types.ModuleType]:
    import importlib.util

    sys.path.insert(0, os.getcwd())
    name = words[0]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None:
        raise SystemExit(f"{sys.executable}: No module named {name}")
    sys.argv = [spec.origin or name, *words[1:]]
    return _main_of(spec, name)


def _main_of(spec: Any, name: str) -> tuple[types.CodeType, types.ModuleType]:
    code = None if spec is None else _code_of(spec)
    if spec is None or code is None:
        raise SystemExit(f"{sys.executable}: can't find '__main__' module in {name!r}")
    module = types.ModuleType("__main__")
    module.__file__ = spec.origin
    module.__spec__ = spec
    module.__package__ = spec.parent
    module.__dict__["__builtins__"] = __builtins__
    return code, module


def _code_of(spec: Any) -> types.CodeType | None:
    found = spec.loader.get_code(spec.name)
    return found if isinstance(found, types.CodeType) else None


def _status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code)  # True is one
    print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _without_us(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


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
        keeper.finish(Ending.EXITED, "os._exit", status)
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


if __name__ == "__main__":
    main()
