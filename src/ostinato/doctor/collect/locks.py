"""Locks that are held while their holder waits: for the device, for I/O, or in an `await`.

Locks that the program makes while it is watched are wrapped; those of Python's own library are left
alone. A wait for the device is told by `syncs`, I/O by the sampler, an `await` by the event loop.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from dataclasses import dataclass
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

from ostinato.doctor.collect.notebook import MOST_TIMES, Notebook
from ostinato.doctor.collect.patches import Patches, quietly
from ostinato.doctor.collect.places import (
    bare_place,
    is_blocking,
    is_users,
    place_at,
    place_of,
    users_frame,
)
from ostinato.doctor.finding import Place
from ostinato.doctor.interpreter_use import LockHeld

_LEAST_IO_US = 15e3  # at a call that is known to block; elsewhere it may lack a CPU
_LEAST_STILL_US = 60e3


@dataclass(slots=True)
class _Taken:
    """A lock that a thread holds now."""

    lock: WatchedLock
    code: CodeType
    line: int
    since_ns: int
    io_us: float = 0.0
    noted: bool = False


@dataclass(slots=True)
class _Seen:
    across: str
    op: str
    place: Place | None
    lock: WatchedLock
    taken: Place
    count: int = 0
    us: float = 0.0


class WatchedLock:
    """A lock of `threading` that knows since when it is held, and who stood in line for it."""

    def __init__(self, inner: Any, book: Locks, made: Place) -> None:
        self._inner = inner
        self._book = book
        self.made = made
        self.blocked = 0
        self.blocked_ns = 0
        self.each_blocked_us: deque[float] = deque(maxlen=MOST_TIMES)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.Lock.acquire`."""
        return self._acquire(blocking, timeout, sys._getframe(1))

    def _acquire(self, blocking: bool, timeout: float, frame: FrameType) -> bool:
        if self._inner.acquire(False):
            self._book.took(self, frame)
            return True
        if not blocking:
            return False
        began = perf_counter_ns()
        got = bool(self._inner.acquire(True, timeout))
        self.blocked += 1
        waited_ns = perf_counter_ns() - began
        self.blocked_ns += waited_ns
        self.each_blocked_us.append(waited_ns / 1e3)
        if got:
            self._book.took(self, frame)
        return got

    def release(self) -> None:
        """As `threading.Lock.release`."""
        self._book.gave(self)
        self._inner.release()

    def locked(self) -> bool:
        """As `threading.Lock.locked`."""
        return bool(self._inner.locked())

    def __enter__(self) -> bool:
        return self._acquire(True, -1, sys._getframe(1))

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._inner._at_fork_reinit()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """That of the lock inside: `isinstance` finds what it would find without us."""
        return type(self._inner)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied and pickled, as the lock inside does."""
        return self._inner.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(self._inner)


class Locks:
    """Wraps the program's locks, and notes what happens while they are held."""

    name = "locks"

    def __init__(self, notebook: Notebook, patches: Patches) -> None:
        self._notebook = notebook
        self._patches = patches
        self._held: dict[int, list[_Taken]] = {}
        self._seen: dict[tuple[Any, ...], _Seen] = {}

    def start(self) -> None:
        """Wrap what `threading.Lock()` makes from now on."""
        self._patches.replace(threading, "Lock", self._maker)
        self._notebook.wait_listeners.append(self._hear_wait)

    def stop(self) -> None:
        """Locks that were made go on to work; nothing more is noted."""

    def _maker(self, original: Any) -> Any:
        def Lock() -> Any:  # noqa: N802 - it stands in the place of threading.Lock
            inner = original()
            frame = sys._getframe(1)
            if not is_users(frame.f_code.co_filename):
                return inner
            return WatchedLock(inner, self, bare_place(frame))

        return Lock

    def took(self, lock: WatchedLock, frame: FrameType) -> None:
        """Hear that this thread has `lock` now."""
        held = self._held.setdefault(threading.get_ident(), [])
        held.append(_Taken(lock, frame.f_code, frame.f_lineno, perf_counter_ns()))

    def gave(self, lock: WatchedLock) -> None:
        """Hear that `lock` is let go, maybe by another thread than took it."""
        own = self._held.get(threading.get_ident(), [])
        for held in (own, *list(self._held.values())):
            for taken in reversed(held):
                if taken.lock is lock:
                    held.remove(taken)
                    return

    def _hear_wait(self, op: str, place: Place | None, us: float, weight: int) -> None:
        for taken in self._held.get(threading.get_ident(), ()):
            self._note(taken, "device", op, place, us * weight, weight)

    def look(self, ident: int, frame: FrameType, blocked: bool, passed_us: float) -> None:
        """Hear from the sampler of a thread that is blocked, or not."""
        held = self._held.get(ident)
        if not held or not blocked or frame.f_code.co_filename == __file__:
            return
        least_us = _LEAST_IO_US if is_blocking(frame, set()) else _LEAST_STILL_US
        users = users_frame(frame)
        place = None if users is None else place_of(users)
        for taken in list(held):
            taken.io_us += passed_us
            if taken.io_us >= least_us:
                op = place.code if place is not None else "a call that blocks"
                us = passed_us if taken.noted else taken.io_us
                self._note(taken, "io", op, place, us, count=not taken.noted)
                taken.noted = True

    def after_callback(self) -> None:
        """Hear from the event loop that a callback ended on this thread, by return or `await`."""
        for taken in self._held.get(threading.get_ident(), ()):
            if not taken.noted:
                taken.noted = True
                us = (perf_counter_ns() - taken.since_ns) / 1e3
                quietly(self._note, taken, "await", "await", _place_of(taken), us)

    def _note(
        self,
        taken: _Taken,
        across: str,
        op: str,
        place: Place | None,
        us: float,
        count: int = 1,
    ) -> None:
        key = (id(taken.lock), across, place.path if place else "", place.line if place else 0)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(across, op, place, taken.lock, _place_of(taken))
        seen.count += count
        seen.us += us

    def fields(self) -> dict[str, Any]:
        """Return every line that waits with a lock in hand."""
        return {"locks": tuple(_record(seen) for seen in self._seen.values())}


def _place_of(taken: _Taken) -> Place:
    return place_at(taken.code, taken.line)


def _record(seen: _Seen) -> LockHeld:
    return LockHeld(
        across=seen.across,
        op=seen.op,
        place=seen.place,
        taken=seen.taken,
        made=seen.lock.made,
        count=seen.count,
        us=seen.us,
        blocked=seen.lock.blocked,
        blocked_us=seen.lock.blocked_ns / 1e3,
        each_blocked_us=tuple(seen.lock.each_blocked_us),
    )
