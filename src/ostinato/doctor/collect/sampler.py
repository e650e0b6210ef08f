"""Who runs, who waits for the GIL: a thread of our own that looks at all the others.

Needs no ptrace and no rights. Every few milliseconds it takes the GIL like any thread, and reads
each thread's stack and its times from /proc without letting the GIL go. While it looks, nobody else
can hold the GIL, so a thread that sleeps in the kernel and yet makes progress from look to look
stands in line for the GIL; what it lost there is the time that passed, less its time on a CPU and
its time ready without one. A thread that makes no progress is blocked in a call of its own
choosing. And where the kernel tells in what a thread sleeps, only those count that sleep as CPython
does for the GIL, with a timeout and in the interpreter's own memory: the main thread of a parallel
region waits for its workers on the same kind of lock, and so does a queue with a timeout.

It looks more seldom when looks take long, so that it takes four thousandths of the time at most.
The pauses are of uneven length, or a loop of the same length would always be met at the same line.
And each look stands for the time since the one before: one that came late, because nobody let the
GIL go, belongs to the line that held it for so long.
"""

from __future__ import annotations

import linecache
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import perf_counter, thread_time
from types import CodeType, FrameType
from typing import Any

from ostinato.doctor.collect.bell import Bell
from ostinato.doctor.collect.frames import current_frames
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.own_thread import OwnThread
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.places import (
    Key,
    is_blocking,
    key_of,
    librarys_frame,
    place_at,
    place_by,
    users_frame,
)
from ostinato.doctor.collect.thread_times import Sleep, ThreadTimes
from ostinato.doctor.collect.turns import Turns
from ostinato.doctor.evidence import Stack
from ostinato.doctor.finding import Place
from ostinato.doctor.interpreter_use import Gil, LineUse, ThreadUse

_INTERVAL_S = 0.02
_SHARE = 0.004
_ALLOWANCE_S = 0.05  # of work beforehand, so that a short watch sees something
_LONGEST_S = 0.25
_DEEPEST = 48
_MOST_STACKS = 4000
_HOLDS = 0.05  # of an interval on a CPU: it did something
_MOST_FILES = 64  # kept open
_MOST_THREADS = 256  # remembered after their end
_BUSY_LINES = 5
_UNEVEN = 0.5  # of a pause, either way


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
    watched_ns: float = 0.0
    lacked_ns: int = 0  # ready, and no CPU to run on
    in_steps: bool = False
    holds: int = 0  # ran while another waited
    stood: int = 0  # asleep for the GIL
    slept: int = 0  # asleep in something else
    busy_us: int = 0  # ran, once its steps had begun
    hidden_us: int = 0  # of that, where the line that ran may have been another
    busy_at: Counter[tuple[CodeType, int]] = field(default_factory=Counter)
    stepped_us: int = 0  # since its steps began, running or not
    outside_at: Counter[tuple[CodeType, int]] = field(default_factory=Counter)
    holding_at: Counter[Key] = field(default_factory=Counter)
    running_at: Counter[Key] = field(default_factory=Counter)
    waiting_at: Counter[Key] = field(default_factory=Counter)


class Sampler:
    """Samples every thread of the process while somebody watches."""

    name = "gil"

    def __init__(
        self,
        notebook: Notebook,
        interval_s: float = _INTERVAL_S,
        patches: Patches | None = None,
    ) -> None:
        self._notebook = notebook
        self._patches = patches
        self._turns = Turns()
        self._random = Random()  # the program has use for its own
        self._interval_s = interval_s
        self._stop = Bell()
        self._threads: dict[int, _Thread] = {}
        self._ended: list[_Thread] = []
        self._stacks: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
        self._samples = 0
        self._contended = 0
        self._late_us: list[float] = []
        self._thread: OwnThread | None = None
        self._pid = os.getpid()
        self.listeners: list[Listener] = []
        self._most_running = self._most_stepping = 0
        self._unread: set[str] = set()

    @property
    def most_running(self) -> int:
        """The most threads that ran at once; of those that make steps, where any do."""
        return self._most_stepping or self._most_running  # what loads a model does so once

    def start(self) -> None:
        """Start looking; a forked child looks at nothing."""
        if not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/schedstat"):
            raise OSError("this kernel tells no time of threads in /proc/self/task/*/schedstat")
        if self._patches is not None:
            self._turns.start(self._patches)
        self._thread = OwnThread(self._run)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking, and let go of every file."""
        self._stop.ring()
        if self._thread is not None and os.getpid() == self._pid:
            self._thread.join(2.0)
        self._turns.give_back()
        for thread in list(self._threads.values()):
            thread.times.close()

    def _run(self) -> None:
        self._notebook.own_this_thread()
        pause, since = self._interval_s, perf_counter()
        while True:
            asked, due_s = perf_counter(), pause * self._random.uniform(1 - _UNEVEN, 1 + _UNEVEN)
            if self._stop.wait(due_s):
                return
            began = perf_counter()
            try:
                self._look(began - asked, began - asked - due_s)
            except Exception as error:  # noqa: BLE001 - a thread that ended between two lines, or an odd frame
                self._notebook.problem(f"a sample of the threads failed: {error!r}")
            while self._unread:
                linecache.getlines(self._unread.pop())
            spent = thread_time()  # what it waited for the GIL took nobody's time
            over = spent - _ALLOWANCE_S - _SHARE * (perf_counter() - since)
            pause = self._interval_s if over <= 0 else min(over / _SHARE, _LONGEST_S)

    def _look(self, passed_s: float, late_s: float) -> None:
        self._samples += 1
        if len(self._late_us) < 100_000:
            self._late_us.append(late_s * 1e6)
        hidden = not self._turns.tells_the_line(late_s)
        alive = {t.ident: t for t in threading.enumerate()}
        for ident in [known for known in self._threads if known not in alive]:
            self._forget(ident)
        waiting = running = stepping = 0
        holders: list[tuple[_Thread, FrameType]] = []
        for ident, frame in current_frames().items():
            if ident in self._notebook.own_threads:
                continue
            thread, known = self._threads.get(ident), alive.get(ident)
            if known is None or known.native_id is None:
                continue
            if thread is None or thread.times.native_id != known.native_id:
                self._meet(ident, known.name, known.native_id)
                continue
            ran, waits = self._judge(ident, thread, frame, passed_s, hidden)
            waiting += waits
            running += ran
            stepping += ran and thread.in_steps
            if ran and not waits:
                holders.append((thread, frame))
        if waiting and running + waiting >= 2:
            self._contended += 1
            for thread, frame in holders:
                thread.holds += 1
                users = users_frame(frame)
                if users is not None:
                    thread.holding_at[key_of(users)] += round(passed_s * 1e6)
        if self._patches is not None:
            self._turns.after_look(running + waiting)
        self._most_running = max(self._most_running, running)
        self._most_stepping = max(self._most_stepping, stepping)

    def _meet(self, ident: int, name: str, native_id: int) -> None:
        self._forget(ident)  # the number of a thread that has ended is given out again
        kept = len(self._threads) < _MOST_FILES
        try:
            thread = _Thread(name=name, times=ThreadTimes(native_id, keep=kept))
        except OSError:  # it has just ended
            return
        _progress(thread)
        self._threads[ident] = thread

    def _forget(self, ident: int) -> None:
        thread = self._threads.pop(ident, None)
        if thread is None:
            return
        thread.times.close()
        self._ended.append(thread)
        if len(self._ended) > 2 * _MOST_THREADS:
            self._ended = sorted(self._ended, key=lambda each: -each.samples)[:_MOST_THREADS]

    def _judge(
        self, ident: int, thread: _Thread, frame: FrameType, passed_s: float, hidden: bool
    ) -> tuple[bool, bool]:
        ran_ns, ready_ns = _progress(thread)
        passed_ns, passed_us = passed_s * 1e9, round(passed_s * 1e6)
        position = (frame.f_code, frame.f_lasti)
        moved = position != thread.position or ran_ns > _HOLDS * passed_ns
        thread.position = position
        thread.samples += 1
        thread.watched_ns += passed_ns
        thread.lacked_ns += ready_ns
        lost_ns = passed_ns - ran_ns - ready_ns
        on_cpu = ran_ns > 0.5 * passed_ns
        calls_out = is_blocking(frame, self._unread)
        blocked = not moved or ran_ns == 0 or calls_out
        # What it lost since a look that found it blocked was lost there, and not to the GIL.
        waits = not blocked and not thread.was_blocked and lost_ns > 0.3 * passed_ns
        waits = waits and _wants_the_gil(thread)
        thread.was_blocked = blocked
        runs = ran_ns > _HOLDS * passed_ns
        users = users_frame(frame)
        stands = blocked and not runs and ready_ns < 0.5 * passed_ns  # else it lacks a CPU
        for listener in self.listeners:
            listener(ident, frame, stands and (calls_out or _is_in_a_call(thread)), passed_s * 1e6)
        place = None if users is None else key_of(users)
        if runs:
            thread.runs += 1
            thread.in_steps = ident in self._notebook.stepping
            if place is not None and (on_cpu or not waits):
                thread.running_at[place] += passed_us
        if waits:
            thread.waits += 1
            thread.wait_us += lost_ns / 1e3
            if place is not None:
                thread.waiting_at[place] += 1
        if runs or waits or thread.name == "MainThread":
            self._fold(thread.name, frame, waits, max(1, round(passed_s / self._interval_s)))
        if ident in self._notebook.stepping:
            was_busy = runs and not calls_out and ran_ns + ready_ns > 0.5 * passed_ns
            self._weigh(thread, frame, passed_us, was_busy, hidden, ident in self._notebook.inside)
        return runs, waits

    @staticmethod
    def _weigh(
        thread: _Thread, frame: FrameType, us: int, was_busy: bool, hidden: bool, inside: bool
    ) -> None:
        """Count the time that a look stands for, of a thread whose steps have begun."""
        thread.stepped_us += us
        innermost = librarys_frame(frame)
        line = None if innermost is None else (innermost.f_code, innermost.f_lineno)
        if was_busy:
            thread.busy_us += us
            thread.hidden_us += us * hidden
        if line is not None and was_busy:
            thread.busy_at[line] += us
        if line is not None and not inside:
            thread.outside_at[line] += us

    def _fold(self, name: str, frame: FrameType, waits: bool, samples: int) -> None:
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
            self._stacks[key] += samples

    def fields(self) -> dict[str, Any]:
        """Return what is known of the GIL, and the folded stacks."""
        late = sorted(self._late_us)
        gil = Gil(
            samples=self._samples,
            interval_us=self._interval_s * 1e6,
            contended=self._contended / self._samples if self._samples else 0.0,
            late_us=late[len(late) // 2] if late else 0.0,
            threads=tuple(_use(t) for t in self._everyone() if t.samples),
        )
        return {"gil": gil, "stacks": _folded(self._stacks)}

    def _everyone(self) -> list[_Thread]:
        everyone = [*self._threads.values(), *self._ended]
        return sorted(everyone, key=lambda thread: -thread.samples)[:_MOST_THREADS]


def _wants_the_gil(thread: _Thread) -> bool:
    """Whether what a thread lost since the last look was lost to the GIL; asked where it lost much.

    One that is awake now slept before: most likely in what it has slept in most often. Where it was
    never seen asleep it may as well have stood at a lock, or lacked a CPU: then it does not count.
    """
    sleep = thread.times.sleep()
    if sleep is Sleep.FOR_THE_GIL:
        thread.stood += 1
        return True
    if sleep in (Sleep.ON_A_THREAD, Sleep.IN_A_CALL):
        thread.slept += 1
        return False
    return sleep is Sleep.UNKNOWN or thread.stood > thread.slept


def _is_in_a_call(thread: _Thread) -> bool:
    """Whether a thread that does nothing waits for the system, not for one that computes."""
    return thread.times.sleep() in (Sleep.IN_A_CALL, Sleep.UNKNOWN)


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
        samples=thread.samples,
        ready=min(1.0, thread.lacked_ns / thread.watched_ns) if thread.watched_ns else 0.0,
        wait_us=thread.wait_us,
        place=_most(thread.holding_at) or _most(thread.running_at),
        holds=thread.holds,
        waits_at=_most(thread.waiting_at),
        in_steps=thread.in_steps,
        busy=_lines(thread.busy_at, thread.busy_us),
        hidden=thread.hidden_us / thread.busy_us if thread.busy_us else 0.0,
        outside=_lines(thread.outside_at, thread.stepped_us),
    )


def _lines(us_at: Counter[tuple[CodeType, int]], whole_us: int) -> tuple[LineUse, ...]:
    dearest = us_at.most_common(_BUSY_LINES) if whole_us else ()
    return tuple(LineUse(place_at(*line), us / whole_us) for line, us in dearest)


def _most(places: Counter[Key]) -> Place | None:
    return place_by(places.most_common(1)[0][0]) if places else None


def _progress(thread: _Thread) -> tuple[int, int]:
    """Return the thread's time on a CPU, and ready without one, since the last look, in ns."""
    now = thread.times.read()
    if now is None:  # it has ended
        return 0, 0
    change = (now[0] - thread.ran_ns, now[1] - thread.ready_ns)
    thread.ran_ns, thread.ready_ns = now
    return change
