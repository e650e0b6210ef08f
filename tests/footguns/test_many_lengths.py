"""Hundreds of lengths (pytorch#196385, parler-tts#93: one graph per length, out of memory)."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import held_bytes
from graphs.replaying import spoil
from ostinato import Buckets, graphed
from ostinato.units import parse_bytes

LENGTHS = list(range(10, 601))
WIDTH = 16


@pytest.fixture
def lengths() -> list[int]:
    """Every length from 10 to 600, in random order."""
    return random.Random(0).sample(LENGTHS, len(LENGTHS))


def step_of(device: torch.device) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).to(device)


def check_all(g: nn.Module, step: nn.Module, lengths: list[int], device: torch.device) -> None:
    for length in lengths:
        x = torch.randn(1, length, WIDTH, device=device)
        spoil(g)
        torch.testing.assert_close(g(x), step(x), rtol=1e-4, atol=1e-5)


def test_buckets_serve_six_hundred_lengths_with_seven_recordings(
    lengths: list[int], device: torch.device
) -> None:
    step = step_of(device)
    buckets = Buckets(1, (16, 32, 64, 128, 256, 512, 600))
    g = graphed(step, admit_after=1, buckets={"input": buckets})
    check_all(g, step, lengths, device)
    report = g.report()
    assert report.recordings == len(report.graphs) == 7
    assert report.replays == len(lengths) - 7
    assert report.evictions == 0


def test_exact_shapes_stay_within_the_budget(lengths: list[int], device: torch.device) -> None:
    step = step_of(device)
    budget = "2MiB" if device.type == "cpu" else "64MiB"
    before = held_bytes(device)
    g = graphed(step, admit_after=1, budget=budget)
    most = 0
    for start in range(0, 200, 20):
        check_all(g, step, lengths[start : start + 20], device)
        report = g.report()
        assert report.bytes == sum(graph.bytes for graph in report.graphs)
        assert report.bytes <= parse_bytes(budget)
        most = max(most, len(report.graphs))
    report = g.report()
    assert 0 < most < 200, most
    assert report.evictions > 0
    held = held_bytes(device) - before
    spare = parse_bytes(budget) if device.type == "cuda" else parse_bytes(budget) // 2
    assert held <= parse_bytes(budget) + spare, "memory beyond what the report admits"
    g.close()
    if device.type == "cpu":
        assert held_bytes(device) <= before


def test_the_ordinary_runner_does_not_record_what_comes_once(
    lengths: list[int], device: torch.device
) -> None:
    step = step_of(device)
    g = graphed(step)
    check_all(g, step, lengths, device)
    report = g.report()
    assert report.recordings == 0
    assert report.bytes == 0
    assert report.reasons == {"not-admitted-yet": len(lengths)}


def test_a_recording_in_use_survives_a_flood_of_lengths(
    lengths: list[int], device: torch.device
) -> None:
    """Eviction weighs hits: the one that answers every other call must not go."""
    step = step_of(device)
    budget = "512KiB" if device.type == "cpu" else "128MiB"
    g = graphed(step, admit_after=1, budget=budget)
    often = torch.randn(1, 8, WIDTH, device=device)
    for _ in range(30):
        g(often)
    for length in lengths[:100]:
        g(torch.randn(1, length, WIDTH, device=device))
        spoil(g)
        torch.testing.assert_close(g(often), step(often), rtol=1e-4, atol=1e-5)
    report = g.report()
    assert report.evictions > 0
    assert report.replays >= 120, report.replays


def test_what_is_remembered_of_lengths_that_never_came_back_is_bounded() -> None:
    """Not the recordings but the book-keeping: a server sees new sizes for ever."""
    import tracemalloc

    g = graphed(torch.neg)
    x = torch.zeros(1 << 16)

    def flood(first: int) -> int:
        for length in range(first, first + 4000):
            g(x[:length])
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        flood(1)
        after_two = flood(5000)
        flood(10000)
        after_four = flood(15000)
    finally:
        tracemalloc.stop()
    assert after_four - after_two < 1 << 20, after_four - after_two


def test_one_length_beyond_the_last_bucket_is_eager_and_right(device: torch.device) -> None:
    step = step_of(device)
    g = graphed(step, admit_after=1, buckets={"input": Buckets(1, (16, 32))})
    check_all(g, step, [10, 33, 32, 600, 17], device)
    report = g.report()
    assert report.reasons == {"outside-buckets": 2}
    assert report.recordings == 2


def test_learned_buckets_are_no_more_than_asked_for(
    lengths: list[int], device: torch.device
) -> None:
    step = step_of(device)
    buckets = Buckets.learn(lengths, 5, dim=1)
    g = graphed(step, admit_after=1, buckets={"input": buckets})
    check_all(g, step, lengths[:100], device)
    report = g.report()
    assert report.recordings <= 5
    assert not report.reasons


def total(x: Tensor) -> Tensor:
    return x.sum(1)


def test_memory_is_back_when_the_runner_is_dropped(device: torch.device) -> None:
    before = held_bytes(device)
    g = graphed(total, admit_after=1)
    for length in range(1, 40):
        g(torch.ones(1, length * 1000, device=device))
    assert g.report().bytes > 0
    del g
    assert held_bytes(device) <= before
