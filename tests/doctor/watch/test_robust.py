"""A watch neither hangs nor changes the program that it watches, whatever that program does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import ostinato
from ostinato.doctor.collect.bell import Bell
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.own_thread import OwnThread
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.sampler import Sampler
from ostinato.doctor.collect.thread_times import ThreadTimes
from ostinato.doctor.evidence import Ending, from_json
from ostinato.doctor.keeper import Keeper
from ostinato.doctor.watching import Choices, Watch


def steps(count: int = 12) -> None:
    layer = nn.Linear(4, 4)
    for _ in range(count):
        layer(torch.ones(1, 4)).sum().item()


def wait_until(is_so: Callable[[], bool]) -> None:
    until = monotonic() + 60
    while not is_so():
        assert monotonic() < until
        sleep(0.01)


class Attending(nn.Module):
    """Attention whose result is copied for its layout alone."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(1, 8, 3, 2, 8).unbind(2)
        q, k, v = (part.transpose(1, 2).contiguous() for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 8, 16)


@pytest.mark.parametrize("trials", [False, True])
def test_what_a_watch_asks_of_a_tensor_spoils_no_recording(trials: bool) -> None:
    with Watch("attending", Choices(trials=trials)), torch.inference_mode():
        attending = ostinato.graphed(Attending().eval(), backend="tape")
        for _ in range(8):
            attending(torch.ones(1, 8, 16))
        report = attending.report()
    assert report.replays > 0, report


def test_threads_of_a_watch_are_not_among_the_programs() -> None:
    before = threading.enumerate()
    with Watch():
        steps()
        assert threading.enumerate() == before


def test_a_signal_finds_no_thread_of_ours(tmp_path: Path) -> None:
    notebook = Notebook()
    blocked: list[set[int]] = []

    def run() -> None:
        notebook.own_this_thread()
        blocked.append({int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])})

    thread = OwnThread(run)
    thread.start()
    thread.join(20)
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1} <= blocked[0]
    assert signal.SIGSEGV not in blocked[0]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_threads_that_end_leave_no_descriptor_behind() -> None:
    sampler = Sampler(Notebook(), interval_s=0.002)
    before = descriptors()
    sampler.start()
    try:
        for _ in range(40):
            rests = [threading.Thread(target=sleep, args=(0.01,)) for _ in range(5)]
            for rest in rests:
                rest.start()
            for rest in rests:
                rest.join()
        # One for each thread that is alive, the main one and what other tests have left.
        wait_until(lambda: descriptors() <= before + len(threading.enumerate()))
    finally:
        sampler.stop()
    assert descriptors() == before
    assert len(sampler.fields()["gil"].threads) > 5


def test_a_crowd_of_threads_costs_few_descriptors() -> None:
    sampler, go = Sampler(Notebook(), interval_s=0.005), threading.Event()
    threads = [threading.Thread(target=go.wait) for _ in range(150)]
    for thread in threads:
        thread.start()
    before = descriptors()
    sampler.start()
    try:
        wait_until(lambda: len(sampler.fields()["gil"].threads) > 140)
        assert descriptors() <= before + 70
    finally:
        go.set()
        sampler.stop()


def test_a_program_may_close_every_descriptor_and_use_its_number() -> None:
    times = ThreadTimes(threading.get_native_id())
    number = times._file
    os.close(number)
    with open(os.devnull) as mine:
        taken = mine.fileno()
        if taken != number:
            os.dup2(taken, number)
        assert times.read() is None
        times.close()
        os.fstat(number)  # raises if it was closed
        if taken != number:
            os.close(number)


def test_a_child_gets_through_while_a_thread_of_its_parent_held_our_lock() -> None:
    holds, go = threading.Event(), threading.Event()
    with Watch() as watch:

        def hold() -> None:
            with watch._patches._lock:
                holds.set()
                go.wait(90)

        thread = threading.Thread(target=hold)
        thread.start()
        holds.wait(60)
        child = os.fork()
        if child == 0:
            plain = type(torch.Tensor.item).__name__ == "method_descriptor"
            os._exit(0 if plain else 3)
        try:
            found = os.waitpid(child, os.WNOHANG)
            until = monotonic() + 60
            while not found[0] and monotonic() < until:
                sleep(0.01)
                found = os.waitpid(child, os.WNOHANG)
            if not found[0]:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            assert found == (child, 0)
        finally:
            go.set()
            thread.join()


def test_a_child_has_no_callback_of_ours_in_its_collector() -> None:
    import gc

    before = len(gc.callbacks)
    with Watch():
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0 if len(gc.callbacks) == before else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_was_lost_on_the_way_is_no_news_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    half = types.ModuleType("torch._dynamo.utils")
    half.__spec__ = types.SimpleNamespace(_initializing=True)  # type: ignore[assignment]
    with Watch() as watch:
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "torch._dynamo.utils", half)
            assert not [p for p in watch.so_far().problems if "compile" in p]
            half.__spec__ = None
            assert [p for p in watch.so_far().problems if "compile" in p]
        steps()
    assert not [p for p in watch.evidence.problems if "compile" in p]


def test_an_end_that_interrupts_an_end_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.doctor.keeper._PATIENCE_S", 0.2)
    with Watch() as watch:
        keeper = Keeper(watch, tmp_path / "e.json")
        stop = watch.stop

        def interrupted() -> Any:
            keeper.finish(Ending.SIGNALLED, "SIGTERM", 143)  # as a handler would, on this thread
            return stop()

        monkeypatch.setattr(watch, "stop", interrupted)
        keeper.finish(Ending.FINISHED)
    ending = from_json((tmp_path / "e.json").read_text()).subject.ending
    assert ending is Ending.FINISHED


def test_a_bell_rings_for_everybody_and_only_when_rung() -> None:
    bell = Bell()
    assert not bell.wait(0.01)
    bell.ring()
    bell.ring()
    assert bell.wait(0.01)
    assert bell.wait(0.01)


def test_a_bell_is_made_of_nothing_that_a_program_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it was replaced")

    for name in ("Lock", "_allocate_lock", "Condition", "Event", "Thread", "get_ident"):
        monkeypatch.setattr(threading, name, refuse)
    bell, ran = Bell(), Bell()
    OwnThread(ran.ring).start()
    assert ran.wait(60)
    assert not bell.wait(0.01)


def test_patches_are_put_back_in_a_child_only_once() -> None:
    patches = Patches()
    patches.replace(os, "getppid", lambda original: lambda: original())
    patches.leave_child()
    patches.leave_child()
    assert type(os.getppid).__name__ == "builtin_function_or_method"


def test_threads_that_load_are_not_counted_with_those_that_step() -> None:
    sampler = Sampler(Notebook())
    sampler._most_running, sampler._most_stepping = 5, 0
    assert sampler.most_running == 5
    sampler._most_stepping = 1
    assert sampler.most_running == 1
