"""Waits: an event loop that computes, and a thread that keeps Python's lock, are seen."""

import asyncio
import sys
import threading
import time

import pytest

from ostinato.serve.metrics.waits import GilWatch, watch_loop


def test_a_loop_that_is_kept_busy_wakes_late_by_as_much() -> None:
    late: list[float] = []

    async def serve() -> None:
        watch = asyncio.create_task(watch_loop(late.append, every_s=0.01))
        await asyncio.sleep(0.05)
        time.sleep(0.2)
        await asyncio.sleep(0.02)
        watch.cancel()

    asyncio.run(serve())
    assert max(late) > 0.15
    assert min(late) < 0.05


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
    waits = watched(0.3)
    assert len(waits) > 10
    assert sorted(waits)[len(waits) // 2] < 0.002


@pytest.mark.usefixtures("_long_turns")
def test_a_thread_that_computes_makes_others_wait_for_the_lock() -> None:
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(2000))

    busy = threading.Thread(target=compute)
    busy.start()
    try:
        waits = watched(0.6)
    finally:
        is_over.set()
        busy.join()
    assert max(waits) > 0.03


def test_a_watch_ends_when_it_is_told_to() -> None:
    watch = GilWatch(lambda _: None, every_s=0.005)
    watch.start()
    watch.stop()
    assert "ostinato-gil-watch" not in {thread.name for thread in threading.enumerate()}
