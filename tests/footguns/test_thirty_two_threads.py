"""Built in one thread, called from many (pytorch#123177: assertion in threads)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import spoil
from ostinato import Buckets, Lease, StaleLease, graphed
from ostinato.graphs import Runner

THREADS = 32
CALLS = 12


def make_step(device: torch.device) -> Callable[[Tensor], Tensor]:
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).to(device)
    return module.requires_grad_(False)


def call_from_threads(
    g: Callable[[Tensor], Any],
    step: Callable[[Tensor], Tensor],
    device: torch.device,
    *,
    rows: Callable[[int], int] = lambda thread: 3,
    own_stream: bool = False,
) -> None:
    """Call from 32 threads at once; whatever one of them meets is raised here."""
    start = threading.Barrier(THREADS, timeout=600)

    def work(thread: int) -> None:
        xs = [
            torch.full((rows(thread), 6), thread + call / CALLS, device=device)
            for call in range(CALLS)
        ]
        wanted = [step(x) for x in xs]
        if device.type == "cuda":
            torch.cuda.synchronize()
        start.wait()
        if own_stream and device.type == "cuda":
            with torch.cuda.stream(torch.cuda.Stream()):
                got = [spoilt(g)(x) for x in xs]
                torch.cuda.current_stream().synchronize()
        else:
            got = [spoilt(g)(x) for x in xs]
        for mine, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work, thread) for thread in range(THREADS)]:
            done.result(timeout=600)


def spoilt(g: Any) -> Any:
    """Return `g` with its outputs emptied: a replay that does nothing must not pass."""
    if isinstance(g, Runner):
        spoil(g)
    return g


def total(g: Runner[..., Any]) -> int:
    report = g.report()
    return report.replays + report.recordings + sum(report.reasons.values())


@pytest.mark.parametrize("own_stream", [False, True])
def test_recorded_in_the_main_thread_and_called_from_32(
    own_stream: bool, device: torch.device
) -> None:
    step = make_step(device)
    g = graphed(step, admit_after=1)
    with torch.enable_grad():  # the mode of a new thread
        g(torch.zeros(3, 6, device=device))
    call_from_threads(g, step, device, own_stream=own_stream)
    report = g.report()
    assert report.recordings == 1
    assert report.replays == THREADS * CALLS
    assert report.calls == THREADS * CALLS + 1


def test_32_threads_that_come_first_at_once_make_one_recording(device: torch.device) -> None:
    step = make_step(device)
    g = graphed(step, admit_after=1)
    call_from_threads(g, step, device)
    report = g.report()
    assert report.recordings == 1
    assert set(report.reasons) <= {"being-recorded"}, report.reasons
    assert report.calls == THREADS * CALLS == total(g)


def test_32_threads_with_several_signatures_make_one_recording_each(device: torch.device) -> None:
    step = make_step(device)
    g = graphed(step, admit_after=1)
    call_from_threads(g, step, device, rows=lambda thread: 1 + thread % 4)
    report = g.report()
    assert report.recordings == len(report.graphs) == 4
    assert set(report.reasons) <= {"being-recorded"}, report.reasons


def test_32_threads_share_the_padding_of_one_bucket(device: torch.device) -> None:
    step = make_step(device)
    g = graphed(step, admit_after=1, buckets={"input": Buckets(0, (8,))})
    call_from_threads(g, step, device, rows=lambda thread: 1 + thread % 8)
    assert g.report().recordings == 1


def test_a_runner_for_each_thread_works_too(device: torch.device) -> None:
    step = make_step(device)
    own = threading.local()

    def call(x: Tensor) -> Any:
        if not hasattr(own, "g"):
            own.g = graphed(step, admit_after=1)
        return own.g(x)

    call_from_threads(call, step, device)


def test_a_lease_is_valid_or_raises_but_never_shows_anothers_result(
    device: torch.device,
) -> None:
    step = make_step(device)
    g = graphed(step, admit_after=1, outputs="leased")
    stale = []

    def work(thread: int) -> None:
        for call in range(CALLS):
            x = torch.full((3, 6), thread + call / CALLS, device=device)
            lease: Any = g(x)
            assert isinstance(lease, Lease)
            try:
                seen = lease.get().clone()
                lease.get()  # still ours: nobody ran it while we copied
            except StaleLease:
                stale.append(thread)
                continue
            torch.testing.assert_close(seen, step(x), rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, thread) for thread in range(8)]:
            done.result(timeout=600)


def test_dropping_recordings_meanwhile_disturbs_no_call(device: torch.device) -> None:
    step = make_step(device)
    g = graphed(step, admit_after=1)
    over = threading.Event()

    def disturb() -> None:
        while not over.wait(0.005):
            g.invalidate()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        call_from_threads(g, step, device)
    finally:
        over.set()
        disturber.join()
    assert g.report().calls == THREADS * CALLS


def test_closing_meanwhile_disturbs_no_call(device: torch.device) -> None:
    step = make_step(device)
    g = graphed(step, admit_after=1)
    closer = threading.Timer(0.02, g.close)
    closer.start()
    call_from_threads(g, step, device)
    closer.join()
    g(torch.zeros(3, 6, device=device))
    assert str(g.last).startswith("eager (closed")


def test_last_is_the_decision_on_the_threads_own_call(device: torch.device) -> None:
    g = graphed(lambda x: x * 2, admit_after=1)
    g(torch.zeros(2, device=device))
    g(torch.zeros(2, device=device))
    mine = g.last
    other = threading.Thread(target=lambda: g(torch.zeros(0, device=device)))
    other.start()
    other.join()
    assert g.last is mine
