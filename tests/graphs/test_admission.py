"""Which signatures get a recording: bounded in number, bytes and memory of the past."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, graphed
from ostinato.graphs.backends.tape import TapeBackend
from ostinato.graphs.graph import Graph

WIDTH = 64


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def step(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu()


def bytes_of_one(length: int, device: torch.device) -> int:
    runner = graphed(step, admit_after=1)
    runner(torch.ones(length, WIDTH, device=device))
    return runner.report().bytes


def test_a_cold_signature_is_answered_at_once(device: torch.device) -> None:
    runner = graphed(step)
    for length in (3, 4, 5):
        runner(torch.ones(length, device=device))
        assert runner.last is not None
        assert runner.last.reason is Reason.NOT_ADMITTED_YET
    assert runner.report().recordings == 0


@pytest.mark.slow
def test_five_hundred_lengths_stay_within_the_budget(device: torch.device) -> None:
    budget = 4 * bytes_of_one(600, device)
    runner = graphed(step, budget=budget, warmups=0)
    lengths = list(range(10, 510)) * 2
    random.Random(0).shuffle(lengths)
    for length in lengths:
        x = torch.ones(length, WIDTH, device=device)
        y = runner(x)
        assert y.shape == x.shape
        report_bytes = runner._store.used_bytes()
        assert report_bytes <= budget
    report = runner.report()
    assert report.bytes == sum(graph.bytes for graph in report.graphs) <= budget
    assert 0 < len(report.graphs) < 500
    # A shape that does not fit is not recorded again and again to find that out.
    assert report.recordings + report.reasons["over-budget"] < 2 * 500
    assert report.calls == len(lengths)


def test_the_past_that_is_remembered_is_bounded(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ostinato.graphs import store

    monkeypatch.setattr(store, "_MOST_ENTRIES", 50)
    runner = graphed(step)
    keep = torch.ones(1000, device=device)
    for _ in range(3):
        runner(keep)
    for length in range(1, 300):
        runner(torch.ones(length, device=device))
    assert len(runner._store.entries()) <= 50
    runner(keep)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED  # what has a recording is not forgotten


def test_one_recording_larger_than_the_budget_is_refused_for_good(device: torch.device) -> None:
    runner = graphed(step, budget=1000, admit_after=1)
    x = torch.ones(100, WIDTH, device=device)
    for _ in range(6):
        assert torch.equal(runner(x), step(x))
    report = runner.report()
    assert (report.recordings, report.bytes) == (0, 0)
    assert runner.last is not None
    assert runner.last.reason is Reason.OVER_BUDGET
    assert "of the 1000 B budget" in runner.last.detail


def test_what_earns_more_per_byte_stays(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Graph, "saved_us", 10.0)
    budget = int(2.2 * bytes_of_one(100, device))
    runner = graphed(step, budget=budget)
    often, seldom, newcomer = (torch.ones(n, WIDTH, device=device) for n in (100, 99, 98))
    for _ in range(3):
        runner(seldom)
    for _ in range(500):
        runner(often)
    for _ in range(100):
        runner(newcomer)
    shapes = {graph.signature for graph in runner.report().graphs}
    assert any("[100, 64]" in shape for shape in shapes)
    assert any("[98, 64]" in shape for shape in shapes)
    assert runner.report().evictions >= 1
    runner(seldom)
    assert runner.last is not None
    assert runner.last.outcome is not Outcome.REPLAYED


def test_a_recording_that_does_not_pay_is_never_judged_on_the_tape() -> None:
    runner = graphed(step, drop_unprofitable=True, admit_after=1)
    x = torch.ones(2)
    runner(x)
    (graph,) = runner._store.graphs()
    graph.replay_us = graph.eager_us + 1e6
    runner(x)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


@pytest.mark.parametrize("asked", [True, False])
def test_a_recording_that_does_not_pay_is_dropped_where_it_is_judged(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A backend as slow as can be, and not called the tape.
    monkeypatch.setattr(TapeBackend, "name", "slow")
    times = iter([10.0, 20.0] * 10)
    monkeypatch.setattr(TapeBackend, "time_us", lambda *_, **__: next(times))
    runner = graphed(step, drop_unprofitable=asked, admit_after=1)
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(runner(x), step(x))
    assert runner.last is not None
    if asked:
        assert runner.last.reason is Reason.UNPROFITABLE
        assert "a replay took 20" in runner.last.detail
        assert runner.report().bytes == 0
    else:
        assert runner.last.outcome is Outcome.REPLAYED


@pytest.mark.gpu
def test_one_large_kernel_does_not_pay_on_a_gpu() -> None:
    runner = graphed(lambda x: x @ x, drop_unprofitable=True, admit_after=1)
    x = torch.ones(4096, 4096, device="cuda")
    for _ in range(3):
        runner(x)
    assert runner.last is not None
    assert runner.last.reason in (Reason.UNPROFITABLE, None)


def test_bytes_are_measured_for_each_recording(device: torch.device) -> None:
    runner: Any = graphed(step, admit_after=1)
    for length in (10, 1000):
        runner(torch.ones(length, WIDTH, device=device))
    small, large = sorted(graph.bytes for graph in runner.report().graphs)
    assert small >= 2 * 10 * WIDTH * 4  # at least what goes in and what comes out
    assert large >= 2 * 1000 * WIDTH * 4
    if device.type == "cpu":
        assert large < 6 * 1000 * WIDTH * 4
