"""What a run does outside torch and the objects it reaches: printing, logging, clocks, files.

A replay runs no Python. A line that prints, logs or reads the clock is harmless as a rule, so the
user is told once that no replay repeats it. A file that is opened, or bytes from the operating
system's source of randomness, mean a result that a replay would get wrong: those are refused.

Seen through Python's profiling hook, which is this thread's own and names the line; where a
profiler holds it already, nothing is seen.
"""

from __future__ import annotations

import builtins
import datetime
import gc
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch

from ostinato.graphs.decision import OstinatoWarning
from ostinato.graphs.libraries import is_library
from ostinato.graphs.observe_draws import (
    OF_GENERATORS,
    SEEDED,
    SEEDING,
    STATE_IS_ASKED,
    is_asked_by_user,
)
from ostinato.graphs.observe_notes import Notes, Refusal
from ostinato.graphs.observe_surroundings import ASKED, asked_by_user
from ostinato.graphs.observe_surroundings import NAMES as ASKED_NAMES
from ostinato.graphs.reasons import Reason
from ostinato.graphs.source_lines import line_at

_MOST_LINES = 1000
_PRINTS = "prints, and no replay does"
_LOGS = "logs, and no replay does"
_CLOCK = "reads the clock, and a replay keeps what was read when it was recorded"
_NOT_SEEN = "the profiling hook was taken away by the function, or by a signal in the middle of it"
_CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns",
           "process_time", "process_time_ns", "thread_time", "thread_time_ns")  # fmt: skip

_TOLD: dict[Any, str] = {
    builtins.print: _PRINTS,
    **{getattr(time, name): _CLOCK for name in _CLOCKS},
}
_REFUSED: dict[Any, str] = {
    builtins.open: "a file is opened; no replay reads or writes it",
}
_FROM_SYSTEM = frozenset({"urandom", "getrandom", "RAND_bytes"})
_SYSTEM_DRAWS = "random bytes of the operating system would be the same in every replay"
# Code that names none of these does none of this, so that watching it would be time lost.
_NAMES = frozenset(
    {
        *_CLOCKS, "now", "utcnow", "today", "print", "open", "write", "writelines", "pprint",
        "debug", "info", "warning", "warning_once", "warn", "error", "exception", "critical", "log",
        *_FROM_SYSTEM, "uuid1", "uuid4", "uuid6", "uuid7", "uuid8", "SystemRandom",
        "token_bytes", "token_hex", "token_urlsafe", "randbits", "randbelow", "choice", "secrets",
        # Without a seed each begins with random bytes of the operating system.
        "Random", "default_rng", "RandomState", "SeedSequence",
        "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64",
        *OF_GENERATORS, "get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all",
        "fork_rng", "seed_all", "manual_seed_all",
        "read_text", "read_bytes", "write_text", "write_bytes", "load", "save", "dump",
    }
)  # fmt: skip
_BUILTINS = frozenset((*_TOLD, *_REFUSED, *ASKED))
_IMPORTERS = frozenset({"importlib._bootstrap", "_frozen_importlib"})
_WATCHED_FROM = "ostinato.graphs.observe"
_METHODS = frozenset({"write", "now", "utcnow", "today"}) | OF_GENERATORS | _FROM_SYSTEM
_TOLD_IN_PYTHON: dict[CodeType, str] = {logging.Logger.handle.__code__: _LOGS}


class _Said:
    """Lines that were warned of. Python's own memory of that is emptied by `catch_warnings`."""

    def __init__(self) -> None:
        self._lines: set[tuple[str, int]] = set()

    def is_new(self, line: tuple[str, int]) -> bool:
        if line in self._lines or len(self._lines) >= _MOST_LINES:
            return False
        self._lines.add(line)
        return True


_SAID = _Said()


class PythonWatcher:
    """Notes what one run does outside torch.

    Args:
        notes: Where refusals go.

    Attributes:
        told: Lines that do what no replay repeats, each with what it is.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.told: dict[tuple[CodeType, int], tuple[str, str]] = {}

    def on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        """Take one event of the profiling hook: a hundred thousand of them in a large model."""
        if event == "c_call":
            if arg in _BUILTINS or arg.__name__ in _METHODS:
                self._on_builtin(frame, arg)
        elif event == "call" and frame.f_code in _TOLD_IN_PYTHON:
            self._tell(frame, _TOLD_IN_PYTHON[frame.f_code])

    def end(self, hook: object) -> None:
        """Refuse a run that did not leave the hook in place: the rest of it was not seen."""
        if hook != self.on_event:
            refusal = Refusal(Reason.PYTHON_SIDE_EFFECT, "sys.setprofile", None, _NOT_SEEN)
            self._notes.refusals.append(refusal)

    def _on_builtin(self, frame: FrameType, called: Any) -> None:
        if called in _TOLD:
            if not is_library(frame.f_globals.get("__name__")):  # logging reads the clock, too
                self._tell(frame, _TOLD[called])
        elif isinstance(called.__self__, torch.Generator):
            if is_asked_by_user(frame):
                detail = SEEDED if called.__name__ in SEEDING else STATE_IS_ASKED
                self._notes.refuse_generator(called.__name__, detail)
        elif called.__name__ in _FROM_SYSTEM or _begins_anywhere(frame, called):
            if _users_frame(frame) is not None:
                self._notes.refuse(Reason.PYTHON_SIDE_EFFECT, called.__name__, _SYSTEM_DRAWS)
        elif (asked := asked_by_user(frame, called)) is not None:
            if not _is_importing(frame):
                self._notes.refuse(Reason.PYTHON_SIDE_EFFECT, called.__name__, asked)
        elif called in _REFUSED:
            if _users_frame(frame) is not None:
                self._notes.refuse(Reason.PYTHON_SIDE_EFFECT, called.__name__, _REFUSED[called])
        elif called.__self__ is datetime.datetime or called.__self__ is datetime.date:
            self._tell(frame, _CLOCK)
        elif any(called.__self__ is stream for stream in (sys.stdout, sys.stderr)):
            self._tell(frame, _PRINTS)

    def _tell(self, frame: FrameType, what: str) -> None:
        users = _users_frame(frame)
        if users is not None:
            module = users.f_globals.get("__name__", "<unknown>")
            self.told.setdefault((users.f_code, users.f_lineno), (module, what))

    def warn(self) -> None:
        """Warn of each line once in the life of the process, as if the line itself had."""
        told, self.told = self.told, {}
        for (code, line), (module, what) in told.items():
            if _SAID.is_new((code.co_filename, line)):
                warnings.warn_explicit(
                    f"{line_at(code.co_filename, line)} {what} "
                    "(ostinato explain python-side-effect)",
                    OstinatoWarning,
                    code.co_filename,
                    line,
                    module=module,
                )


def _begins_anywhere(frame: FrameType, called: Any) -> bool:
    """Whether a generator of Python's, new or known, is given no seed."""
    is_seeding = called.__name__ == "seed" and isinstance(called.__self__, random.Random)
    return is_seeding and frame.f_locals.get("a") is None


def _users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the user's code that does it; None where torch, or we ourselves, do.

    None, too, where Python collects garbage and tells somebody of it, and where it imports a
    module, which a tool may watch: any line may come to the first, and the second happens once.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not is_library(module):
            code = frame.f_code
            is_told = any(getattr(each, "__code__", None) is code for each in gc.callbacks)
            return None if is_told or _is_importing(frame) else frame
        if module.partition(".")[0] not in sys.stdlib_module_names:
            return None
        frame = frame.f_back
    return None


def _is_importing(frame: FrameType | None) -> bool:
    """Whether the run that is watched has come to an import, below which `frame` is."""
    while frame is not None and frame.f_globals.get("__name__") != _WATCHED_FROM:
        if frame.f_globals.get("__name__") in _IMPORTERS:
            return True
        frame = frame.f_back
    return False


def may_act(names: AbstractSet[str]) -> bool:
    """Whether code that reads these names may do what is watched for here."""
    return not (_NAMES.isdisjoint(names) and ASKED_NAMES.isdisjoint(names))


@contextmanager
def python_is_watched(watcher: PythonWatcher) -> Iterator[None]:
    """Have `watcher` see what this thread calls until the block ends."""
    hook: Callable[..., Any] | None = sys.getprofile()
    if hook is not None:
        yield
        return
    sys.setprofile(watcher.on_event)
    try:
        yield
        watcher.end(sys.getprofile())
    finally:
        sys.setprofile(None)
