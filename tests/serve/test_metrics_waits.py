"""Waits: an event loop that computes, and a thread that keeps Python's lock, are seen."""

import asyncio
import sys
import threading
import time

import pytest

from ostinato.serve.metrics.waits import GilWatch, watch_loop
from serve.running import wait_for


def test_a_loop_that_is_kept_busy_wakes_late_by_as_much() -> None:
    late: list[float] = []

    async def serve() -> None:
        watch = asyncio.create_task(watch_loop(late.append, every_s=0.01))
        async with asyncio.timeout(60):
            while not any(seconds < 0.05 for seconds in late):  # a busy machine is late itself
                await asyncio.sleep(0.01)
            time.sleep(0.2)
            while max(late) <= 0.15:
                await asyncio.sleep(0.01)
        watch.cancel()

    asyncio.run(serve())
    assert max(late) > 0.15


@pytest.fixture
def _long_turns() -> object:
    """Let a thread keep the lock for 50 ms at a time, so that waiting for it stands out."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.05)
    yield
    sys.setswitchinterval(interval)


def watched(seconds: float) -> list[float]:
    waits: list[float] = []
    watch = GilWatch(waits.append, every_s=0.005)
    watch.start()
    time.sleep(seconds)
    watch.stop()
    return waits


def test_nobody_waits_for_the_lock_when_nobody_computes() -> None:
    def median() -> float:
        waits = watched(0.3)
        return sorted(waits)[len(waits) // 2] if waits else 1.0

    wait_for(lambda: median() < 0.002)  # at last: on a busy machine a thread waits for a processor


@pytest.mark.usefixtures("_long_turns")
def test_a_thread_that_computes_makes_others_wait_for_the_lock() -> None:
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(2000))

    busy = threading.Thread(target=compute)
    busy.start()
    try:
        wait_for(lambda: max(watched(0.6), default=0) > 0.03)
    finally:
        is_over.set()
        busy.join()


def test_a_watch_ends_when_it_is_told_to() -> None:
    watch = GilWatch(lambda _: None, every_s=0.005)
    watch.start()
    watch.stop()
    assert "ostinato-gil-watch" not in {thread.name for thread in threading.enumerate()}
