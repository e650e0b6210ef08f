"""The process that runs a watched program: `ostinato doctor run` starts it, and reads what it left.

The program runs here as it would by itself: as `__main__`, with its own arguments, exit status,
signals and output. What was seen is written when it ends, however it ends, and every few seconds
before, so that a crash or a kill costs the last seconds and not the report.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import traceback
import types
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import perf_counter, sleep
from types import FrameType
from typing import Any, NoReturn

from ostinato.doctor.evidence import Ending, Evidence, to_json
from ostinato.doctor.watching import Choices, Watch

_FIRST_SAVE_S = 3.0
_GRACE_S = 5.0  # to end in, before it is killed
_SHARE = 0.004  # of the time may go into saving what was seen so far


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, and where to leave the evidence."""

    program: list[str]
    evidence: str
    choices: dict[str, bool]
    alive: int = -1  # a pipe that ends when the process does that started this one


class _Keeper:
    """Writes the evidence: now and then, and at the end."""

    def __init__(self, watch: Watch, path: Path) -> None:
        self._watch = watch
        self._path = path
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="ostinato-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        self._watch.ignore_this_thread()
        pause = _FIRST_SAVE_S
        while not self._stop.wait(pause):
            began = perf_counter()
            with self._lock:
                if self._ended:
                    return
                try:
                    self._write(self._watch.so_far())
                except Exception as error:  # noqa: BLE001 - the next one, or the last one, may succeed
                    self._watch.problem(f"evidence was not saved on the way: {error!r}")
            pause = max(_FIRST_SAVE_S, (perf_counter() - began) / _SHARE)

    def finish(self, ending: Ending, detail: str = "", status: int = 0) -> None:
        """Write the last evidence; only once, and only in the process that was asked to."""
        if os.getpid() != self._pid or self._ended:
            return
        self._stop.set()
        with self._lock:
            self._ended = True
            evidence = self._watch.stop()
            subject = replace(evidence.subject, ending=ending, detail=detail, exit_status=status)
            self._write(replace(evidence, subject=subject))

    def abandon(self) -> None:
        """Write nothing any more."""
        self._stop.set()
        with self._lock:
            self._ended = True

    def _write(self, evidence: Evidence) -> None:
        draft = self._path.with_suffix(".draft")
        draft.write_text(to_json(evidence), encoding="utf-8")
        draft.replace(self._path)


def main() -> NoReturn:
    """Run the program that the order in the first argument names."""
    order = Order(**json.loads(sys.argv[1]))
    watch = Watch(" ".join(order.program), Choices(**order.choices))
    watch.start()
    keeper = _Keeper(watch, Path(order.evidence))
    keeper.start()
    _mind_parent(watch, keeper, order)
    _mind_signals(keeper)
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


def _run(program: list[str], keeper: _Keeper) -> int:
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
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    text = Path(path).read_bytes()
    return compile(text, os.path.abspath(path), "exec"), module


def _load_module(words: list[str]) -> tuple[types.CodeType, types.ModuleType]:
    import importlib.util

    sys.path.insert(0, os.getcwd())
    name = words[0]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = None if spec is None else _code_of(spec)
    if spec is None or code is None:
        raise SystemExit(f"{sys.executable}: No module named {name}")
    sys.argv = [spec.origin or name, *words[1:]]
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
        return error.code
    print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _without_us(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _mind_parent(watch: Watch, keeper: _Keeper, order: Order) -> None:
    """End the program when nobody is left to report on it, and leave nothing behind."""
    if order.alive < 0:
        return
    os.set_inheritable(order.alive, False)

    def look() -> None:
        watch.ignore_this_thread()
        try:
            os.read(order.alive, 1)
        except OSError:
            return  # the program closed every file that it did not know
        keeper.abandon()
        shutil.rmtree(Path(order.evidence).parent, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(_GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, name="ostinato-parent", daemon=True).start()


def _mind_signals(keeper: _Keeper) -> None:
    """Write the evidence when the program is told to end, and then let it end that way."""

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one would cost the evidence
        keeper.finish(Ending.SIGNALLED, signal.Signals(number).name, 128 + number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


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


def _mind_sudden_exit(keeper: _Keeper) -> None:
    """Write the evidence before `os._exit`, which runs nothing else."""
    leave = os._exit

    def _exit(status: int) -> NoReturn:
        keeper.finish(Ending.EXITED, "os._exit", status)
        leave(status)

    os._exit = _exit


if __name__ == "__main__":
    main()
