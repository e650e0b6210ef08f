"""Looking at the frames of all threads: never stops one, and leaves the collector as it was."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from ostinato.doctor.collect.frames import current_frames

# Threads come and go, and the garbage collector calls Python at nearly every allocation: with
# `sys._current_frames` alone this stands still within a second on the Pythons that have the fault.
CROWD = """
import gc, random, sys, threading, time
from ostinato.doctor.collect.frames import current_frames

ended = threading.Event()
gc.callbacks.append(lambda phase, info: sum(range(9000)))
gc.set_threshold(2, 1000, 1000)
sys.setswitchinterval(1e-4)

def look():
    while not ended.wait(2e-4):
        held = [[] for _ in range(random.randrange(3))]
        assert threading.get_ident() in current_frames()

def burn(until):
    while time.perf_counter() < until:
        sum(range(1000))

looking = threading.Thread(target=look)
looking.start()
until = time.perf_counter() + 4
while time.perf_counter() < until:
    short = [threading.Thread(target=burn, args=(time.perf_counter() + 5e-3,)) for _ in range(3)]
    for thread in short:
        thread.start()
    for thread in short:
        thread.join()
ended.set()
looking.join()
print("ended")
"""


def test_threads_that_begin_and_end_meanwhile_are_not_stopped() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", CROWD], capture_output=True, text=True, timeout=60, check=False
    )
    assert (shown.stdout, shown.stderr) == ("ended\n", "")


@pytest.mark.parametrize("on", [True, False])
def test_the_garbage_collector_is_as_it_was(on: bool) -> None:
    if not on:
        gc.disable()
    try:
        frames = current_frames()
        assert gc.isenabled() is on
    finally:
        gc.enable()
    assert frames.keys() == sys._current_frames().keys()
    caller = frames[threading.get_ident()].f_back
    assert caller is not None
    assert caller.f_code.co_name == "test_the_garbage_collector_is_as_it_was"


def test_the_collector_is_off_while_the_frames_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def look() -> dict[int, object]:
        seen.append(gc.isenabled())
        return {}

    monkeypatch.setattr(sys, "_current_frames", look)
    assert current_frames() == {}
    assert seen == [False]
    assert gc.isenabled()
