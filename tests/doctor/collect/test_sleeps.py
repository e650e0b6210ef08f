"""A thread is told by what it sleeps in; a timeout alone does not make it a wait for the GIL.

Each sleep lasts until the test has seen it, or until a minute has passed.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ostinato.doctor.collect import thread_times
from ostinato.doctor.collect.interpreter_state import interpreter_state
from ostinato.doctor.collect.sampler import _Thread, _wants_the_gil
from ostinato.doctor.collect.thread_times import Sleep, ThreadTimes

MOST_S = 60.0
CALLS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
"""What sleeps, and what ends it."""


def call(name: str, sleeps: Callable[[], Any], ends: Callable[[], Any]) -> None:
    CALLS[name] = (sleeps, ends)


def in_condition(condition: threading.Condition, notify: bool) -> None:
    with condition:
        condition.notify() if notify else condition.wait(MOST_S)


plain, again, simple, full = threading.Lock(), threading.RLock(), queue.SimpleQueue(), queue.Queue()
for lock in (plain, again):
    lock.acquire()
condition, event, slots = threading.Condition(), threading.Event(), threading.Semaphore(0)
call("lock", lambda: plain.acquire(timeout=MOST_S), plain.release)
call("lock of its owner", lambda: again.acquire(timeout=MOST_S), again.release)
call("queue in C", lambda: simple.get(timeout=MOST_S), lambda: simple.put(1))
call("queue", lambda: full.get(timeout=MOST_S), lambda: full.put(1))
call(
    "condition",
    lambda: in_condition(condition, notify=False),
    lambda: in_condition(condition, notify=True),
)
call("event", lambda: event.wait(MOST_S), event.set)
call("semaphore", lambda: slots.acquire(timeout=MOST_S), slots.release)
for_ever = threading.Lock()
for_ever.acquire()
call("no timeout", for_ever.acquire, for_ever.release)


@contextmanager
def asleep(run: Callable[[], Any], ends: Callable[[], Any]) -> Iterator[ThreadTimes]:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    times = ThreadTimes(thread.native_id or 0, keep=False)
    try:
        if times.sleep() is Sleep.UNKNOWN:
            pytest.skip("this kernel does not tell in what a thread sleeps")
        yield times
    finally:
        ends()
        thread.join(MOST_S)


def blocked(times: ThreadTimes) -> Sleep:
    """Return what a thread sleeps in that has come to rest: it stays so from look to look."""
    ran = None
    while True:
        now, sleep, after = times.read(), times.sleep(), times.read()
        if ran == now == after and sleep is not Sleep.AWAKE:  # it ran at no time in between
            return sleep
        ran = now
        threading.Event().wait(0.05)  # ours sleeps too, and the other one can run


@pytest.mark.skipif(interpreter_state() is None, reason="the system does not tell where the GIL is")
@pytest.mark.parametrize("name", CALLS)
def test_a_lock_of_the_program_is_no_wait_for_the_gil_with_a_timeout_or_without(name: str) -> None:
    with asleep(*CALLS[name]) as times:
        assert blocked(times) is Sleep.ON_A_THREAD
        assert not _wants_the_gil(_Thread("one", times))


def test_a_call_of_the_system_is_told_as_one() -> None:
    end, other = os.pipe()
    with asleep(lambda: os.read(end, 1), lambda: os.write(other, b"x")) as times:
        assert blocked(times) is Sleep.IN_A_CALL
    for number in (end, other):
        os.close(number)


def sleep_of_one_that_wants_the_gil() -> Sleep:
    """Look at a thread that computes, again and again, while we have the GIL that it wants."""
    go_on = [True]

    def compute() -> None:
        while go_on:
            pass

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.05)
    try:
        with asleep(compute, go_on.clear) as times:
            while (sleep := times.sleep()) is Sleep.AWAKE:
                pass
            return sleep
    finally:
        sys.setswitchinterval(before)


def test_a_thread_that_wants_to_compute_sleeps_for_the_gil() -> None:
    assert sleep_of_one_that_wants_the_gil() is Sleep.FOR_THE_GIL


def test_where_nobody_tells_where_the_gil_is_a_timeout_speaks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_times, "interpreter_state", lambda: None)
    assert sleep_of_one_that_wants_the_gil() is Sleep.FOR_THE_GIL
    lock = threading.Lock()
    lock.acquire()
    with asleep(lambda: lock.acquire(timeout=MOST_S), lock.release) as times:
        assert blocked(times) is Sleep.FOR_THE_GIL
