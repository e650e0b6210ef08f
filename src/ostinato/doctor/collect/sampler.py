"""Who runs, who waits for the GIL: a thread of our own that looks at all the others.

Needs no ptrace and no rights. Every few milliseconds it takes the GIL like any thread, and reads
each thread's stack and its times from /proc without letting the GIL go. While it looks, nobody else
can hold the GIL, so a thread that sleeps in the kernel and yet makes progress from look to look
stands in line for the GIL; what it lost there is the time that passed, less its time on a CPU and
its time ready without one. A thread that makes no progress is blocked in a call of its own
choosing.

It looks more seldom when looks take long, so that it takes no more than a hundredth of the time.
"""

from __future__ import annotations

import linecache
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from types import CodeType, FrameType
from typing import Any

from ostinato.doctor.collect.frames import current_frames
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.places import (
    Key,
    is_blocking,
    key_of,
    place_by,
    users_frame,
)
from ostinato.doctor.collect.thread_times import ThreadTimes
from ostinato.doctor.evidence import Stack
from ostinato.doctor.finding import Place
from ostinato.doctor.interpreter_use import Gil, ThreadUse

_INTERVAL_S = 0.02
_SHARE = 0.01
_ALLOWANCE_S = 0.05  # of work beforehand, so that a short watch sees something
_LONGEST_S = 0.25
_DEEPEST = 48
_MOST_STACKS = 4000
_HOLDS = 0.05  # of an interval on a CPU: it did something


Listener = Callable[[int, FrameType, bool, float], None]
"""Told of every look at a thread: its number, frame, whether it is blocked, the time passed in
us."""


@dataclass(slots=True)
class _Thread:
    name: str
    times: ThreadTimes
    ran_ns: int = 0
    ready_ns: int = 0
    position: tuple[CodeType, int] | None = None
    was_blocked: bool = False
    samples: int = 0
    runs: int = 0
    waits: int = 0
    wait_us: float = 0.0
    in_steps: bool = False
    running_at: Counter[Key] = field(default_factory=Counter)
    waiting_at: Counter[Key] = field(default_factory=Counter)


class Sampler:
    """Samples every thread of the process while somebody watches."""

    name = "gil"

    def __init__(self, notebook: Notebook, interval_s: float = _INTERVAL_S) -> None:
        self._notebook = notebook
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._threads: dict[int, _Thread] = {}
        self._stacks: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
        self._samples = 0
        self._contended = 0
        self._late_us: list[float] = []
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.listeners: list[Listener] = []
        self.most_running = 0
        self._unread: set[str] = set()

    def start(self) -> None:
        """Start looking; a forked child looks at nothing."""
        if not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/schedstat"):
            raise OSError("this kernel tells no time of threads in /proc/self/task/*/schedstat")
        self._thread = threading.Thread(target=self._run, name="ostinato-doctor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking, and let go of every file."""
        self._stop.set()
        if self._thread is not None and os.getpid() == self._pid:
            self._thread.join(timeout=2.0)
        for thread in self._threads.values():
            thread.times.close()

    def _run(self) -> None:
        self._notebook.own_threads.add(threading.get_ident())
        pause, spent, since = self._interval_s, 0.0, perf_counter()
        while True:
            asked = perf_counter()
            if self._stop.wait(pause):
                return
            began, worked = perf_counter(), thread_time()
            try:
                self._look(began - asked, (began - asked - pause) * 1e6)
            except Exception as error:  # noqa: BLE001 - a thread that ended between two lines, or an odd frame
                self._notebook.problem(f"a sample of the threads failed: {error!r}")
            while self._unread:
                linecache.getlines(self._unread.pop())
            spent += thread_time() - worked  # what it waited for the GIL took nobody's time
            over = spent - _ALLOWANCE_S - _SHARE * (perf_counter() - since)
            pause = self._interval_s if over <= 0 else min(over / _SHARE, _LONGEST_S)

    def _look(self, passed_s: float, late_us: float) -> None:
        self._samples += 1
        if len(self._late_us) < 100_000:
            self._late_us.append(late_us)
        names = {t.ident: t for t in threading.enumerate()}
        waiting = running = 0
        for ident, frame in current_frames().items():
            if ident in self._notebook.own_threads:
                continue
            thread = self._threads.get(ident)
            if thread is None:
                known = names.get(ident)
                if known is None or known.native_id is None:
                    continue
                thread = self._threads[ident] = _open(known.name, known.native_id)
                continue
            ran, waits = self._judge(ident, thread, frame, passed_s)
            waiting += waits
            running += ran
        if waiting and running + waiting >= 2:
            self._contended += 1
        self.most_running = max(self.most_running, running)

    def _judge(
        self, ident: int, thread: _Thread, frame: FrameType, passed_s: float
    ) -> tuple[bool, bool]:
        ran_ns, ready_ns = _progress(thread)
        passed_ns = passed_s * 1e9
        position = (frame.f_code, frame.f_lasti)
        moved = position != thread.position or ran_ns > _HOLDS * passed_ns
        thread.position = position
        thread.samples += 1
        lost_ns = passed_ns - ran_ns - ready_ns
        on_cpu = ran_ns > 0.5 * passed_ns
        blocked = not moved or ran_ns == 0 or is_blocking(frame, self._unread)
        # What it lost since a look that found it blocked was lost there, and not to the GIL.
        waits = not blocked and not thread.was_blocked and lost_ns > 0.3 * passed_ns
        thread.was_blocked = blocked
        runs = ran_ns > _HOLDS * passed_ns
        users = users_frame(frame)
        for listener in self.listeners:
            listener(ident, frame, blocked and not runs, passed_s * 1e6)
        place = None if users is None else key_of(users)
        if runs:
            thread.runs += 1
            if place is not None and (on_cpu or not waits):
                thread.running_at[place] += 1
        if waits:
            thread.waits += 1
            thread.wait_us += lost_ns / 1e3
            if place is not None:
                thread.waiting_at[place] += 1
        if runs or waits or thread.name == "MainThread":
            self._fold(thread.name, frame, waits)
        return runs, waits

    def _fold(self, name: str, frame: FrameType, waits: bool) -> None:
        frames: list[str] = []
        at: FrameType | None = frame
        while at is not None and len(frames) < _DEEPEST:
            code = at.f_code
            path = code.co_filename
            short = path.rsplit("/", 1)[-1]
            if "ostinato/doctor/" not in path and not path.startswith("<frozen"):
                frames.append(f"{code.co_qualname} ({short}:{at.f_lineno})")
            at = at.f_back
        key = (name, tuple(reversed(frames)), waits)
        if key in self._stacks or len(self._stacks) < _MOST_STACKS:
            self._stacks[key] += 1

    def fields(self) -> dict[str, Any]:
        """Return what is known of the GIL, and the folded stacks."""
        late = sorted(self._late_us)
        gil = Gil(
            samples=self._samples,
            interval_us=self._interval_s * 1e6,
            contended=self._contended / self._samples if self._samples else 0.0,
            late_us=late[len(late) // 2] if late else 0.0,
            threads=tuple(_use(t) for t in list(self._threads.values()) if t.samples),
        )
        return {"gil": gil, "stacks": _folded(self._stacks)}


def _folded(stacks: Counter[tuple[str, tuple[str, ...], bool]]) -> tuple[Stack, ...]:
    together: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for (thread, frames, waits), count in stacks.items():
        counts = together.setdefault((thread, frames), [0, 0])
        counts[0] += count
        counts[1] += count * waits
    return tuple(
        Stack(thread, frames, samples, waits)
        for (thread, frames), (samples, waits) in sorted(
            together.items(), key=lambda item: -item[1][0]
        )
    )


def _use(thread: _Thread) -> ThreadUse:
    return ThreadUse(
        name=thread.name,
        runs=thread.runs / thread.samples,
        waits=thread.waits / thread.samples,
        wait_us=thread.wait_us,
        place=_most(thread.running_at),
        waits_at=_most(thread.waiting_at),
        in_steps=thread.in_steps,
    )


def _most(places: Counter[Key]) -> Place | None:
    return place_by(places.most_common(1)[0][0]) if places else None


def _open(name: str, native_id: int) -> _Thread:
    thread = _Thread(name=name, times=ThreadTimes(native_id))
    _progress(thread)
    return thread


def _progress(thread: _Thread) -> tuple[int, int]:
    """Return the thread's time on a CPU, and ready without one, since the last look, in ns."""
    now = thread.times.read()
    if now is None:  # it has ended
        return 0, 0
    change = (now[0] - thread.ran_ns, now[1] - thread.ready_ns)
    thread.ran_ns, thread.ready_ns = now
    return change
