"""Callbacks of asyncio that do not come back, and locks that a coroutine holds while it awaits.

Every callback is timed. What a slow one was doing is known from the sampler, which looked at its
thread meanwhile.
"""

from __future__ import annotations

import asyncio.events
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import FrameType
from typing import Any

from ostinato.doctor.collect.notebook import MOST_TIMES, Notebook
from ostinato.doctor.collect.patches import Patches, quietly
from ostinato.doctor.collect.places import bare_place, place_at, users_frame
from ostinato.doctor.collect.thread_times import ThreadTimes
from ostinato.doctor.finding import Place
from ostinato.doctor.interpreter_use import LoopBlock

_SLOW_NS = 20_000_000


@dataclass(slots=True)
class _Loop:
    """One thread's event loop."""

    times: ThreadTimes | None
    busy: bool = False
    callbacks: int = 0
    places: Counter[Place] = field(default_factory=Counter)


@dataclass(slots=True)
class _Seen:
    op: str
    place: Place | None
    count: int = 0
    us: float = 0.0
    longest_us: float = 0.0
    each_us: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))

    def add(self, other: _Seen) -> None:
        self.each_us.extend(other.each_us)
        self.count += other.count
        self.us += other.us
        self.longest_us = max(self.longest_us, other.longest_us)


class EventLoops:
    """Times the callbacks of every asyncio loop of the process."""

    name = "loop"

    def __init__(self, notebook: Notebook, patches: Patches) -> None:
        self._notebook = notebook
        self._patches = patches
        self._loops: dict[int, _Loop] = {}
        self._seen: dict[Place | None, _Seen] = {}
        self._met: dict[Place, Counter[Place]] = {}  # where a coroutine was when it was looked at
        self.after_callback: list[Callable[[], None]] = []

    def start(self) -> None:
        """Stand before the method that runs each callback."""
        self._patches.replace(asyncio.events.Handle, "_run", self._around)

    def stop(self) -> None:
        """Say what could not be seen; the patches are undone together."""
        for loop in self._loops.values():
            if loop.times is not None:
                loop.times.close()
        if "uvloop" in sys.modules and not self._loops:
            self._notebook.problem(
                "uvloop runs its callbacks in C, so of those only modules that they call are timed"
            )

    def _around(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def _run(handle: Any) -> Any:
            ident = threading.get_ident()
            loop = self._loops.get(ident)
            if loop is None:
                loop = self._loops[ident] = _Loop(_times_of_this_thread())
            loop.busy = True
            loop.callbacks += 1
            ready = _ready_ns(loop)
            began = perf_counter_ns()
            try:
                return original(handle)
            finally:
                took = perf_counter_ns() - began
                loop.busy = False
                if took > _SLOW_NS:
                    took -= _ready_ns(loop) - ready  # without a CPU: the machine's fault
                    quietly(self._note, handle, loop, began, took)
                if loop.places:
                    loop.places.clear()
                for listener in self.after_callback:
                    listener()

        return _run

    def look(self, ident: int, frame: FrameType, _blocked: bool, _passed_us: float) -> None:
        """Hear from the sampler where a thread is."""
        loop = self._loops.get(ident)
        if loop is not None and loop.busy:
            users = users_frame(frame)
            if users is not None:
                loop.places[bare_place(users)] += 1

    def hear_step(self, place: Place | None, began_ns: int, ended_ns: int) -> None:
        """Hear of a module that ran on a loop's thread, where callbacks cannot be timed."""
        timed = self._loops.get(threading.get_ident())
        if timed is None and ended_ns - began_ns > _SLOW_NS:
            self._count(place, began_ns, ended_ns - began_ns)

    def _note(self, handle: Any, loop: _Loop, began_ns: int, took_ns: int) -> None:
        if took_ns > _SLOW_NS:
            found, coroutine = loop.places.most_common(1), _coroutine_of(handle)
            if found and coroutine is not None:
                self._met.setdefault(coroutine, Counter())[found[0][0]] += 1
            self._count(found[0][0] if found else coroutine, began_ns, took_ns)

    def _count(self, place: Place | None, began_ns: int, took_ns: int) -> None:
        us = took_ns / 1e3
        seen = self._seen.setdefault(place, _Seen(op=_words(place), place=place))
        seen.add(_Seen(seen.op, place, 1, us, us, deque((us,))))
        self._notebook.span("loop", seen.op, self._notebook.since_us(began_ns), us)

    def fields(self) -> dict[str, Any]:
        """Return the slow callbacks by line.

        Those of a coroutine at which nobody looked stood most likely where it stood when somebody
        did.
        """
        callbacks = sum(loop.callbacks for loop in list(self._loops.values()))
        by_line: dict[tuple[str, int], _Seen] = {}
        for place, seen in list(self._seen.items()):
            met = self._met.get(place) if place is not None else None
            at = met.most_common(1)[0][0] if met else place
            line = ("", 0) if at is None else (at.path, at.line)
            by_line.setdefault(line, _Seen(op=_words(at), place=at)).add(seen)
        blocks = [
            LoopBlock(s.op, s.place, s.count, s.us, s.longest_us, callbacks, tuple(s.each_us))
            for s in by_line.values()
        ]
        return {"loop_blocks": tuple(sorted(blocks, key=lambda block: -block.us))}


def _words(place: Place | None) -> str:
    return place.code if place is not None and place.code else "a callback"


def _times_of_this_thread() -> ThreadTimes | None:
    try:
        return ThreadTimes(threading.get_native_id())
    except OSError:  # this kernel keeps no such account
        return None


def _ready_ns(loop: _Loop) -> int:
    now = None if loop.times is None else loop.times.read()
    return 0 if now is None else now[1]


def _coroutine_of(handle: Any) -> Place | None:
    """Return where the coroutine of a task's step begins, where the callback is one."""
    task = getattr(getattr(handle, "_callback", None), "__self__", None)
    get_coro = getattr(task, "get_coro", None)
    code = getattr(get_coro(), "cr_code", None) if get_coro is not None else None
    return None if code is None else place_at(code, code.co_firstlineno)
