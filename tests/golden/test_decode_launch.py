"""What one decode launch is on a GPU: one graph, no wait of the host, the kernels of its steps.

Latency is noisy and structure is not. A change here is a change of every launch's cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
import torch

from llm.resident_rows import Asked, Host, SumAttention
from ostinato import measure
from ostinato.llm.params import SamplingParams
from ostinato.llm.resident import Launch

pytestmark = pytest.mark.gpu

WAITS = ("Synchronize", "cudaMemcpy ", "cudaFree", "cudaMalloc", "StreamWait")
NODES = 24
"""Kernels, copies and fills of one step of the table decoder, sampled greedily."""


@dataclass(frozen=True)
class Traced:
    """What the driver saw.

    Attributes:
        calls: CUDA calls of the host, by name.
        launches: For every call of the host that queued work, what ran on the device by name.
    """

    calls: Counter[str]
    launches: list[Counter[str]]

    @property
    def graph(self) -> Counter[str]:
        """What the graph of the launch ran."""
        return max(self.launches, key=lambda launch: launch.total())


def trace(run: Callable[[], object]) -> Traced:
    """Run under the profiler; what is queued meanwhile is waited for outside of it."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with measure.profiler(*activities) as profile:
        run()
        with torch.profiler.record_function("over"):
            pass
        torch.cuda.synchronize()
    assert profile.profiler is not None
    events: list[Any] = list(profile.profiler.kineto_results.events())
    over = next(event.start_ns() for event in events if event.name() == "over")
    calls: Counter[str] = Counter()
    launches: dict[int, Counter[str]] = {}
    for event in events:
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            launches.setdefault(event.correlation_id(), Counter())[event.name()] += 1
        elif event.name().startswith("cu") and event.start_ns() < over:
            calls[event.name()] += 1
    return Traced(calls, list(launches.values()))


@pytest.fixture
def host() -> Host:
    host = Host(torch.device("cuda:0"), attention=SumAttention(cost_follows_table=False))
    for row in range(4):
        host.seat(row, Asked((5 + row, 3), SamplingParams(max_tokens=40, temperature=0)))
    for steps in (1, 8):
        host.collect(host.resident.launch(steps))
    return host


def test_a_launch_is_one_graph_and_the_host_waits_for_nothing(host: Host) -> None:
    assert host.resident.why_queued is None
    launches: list[Launch] = []
    seen = trace(lambda: launches.append(host.resident.launch(8)))
    assert all(len(gave.tokens) == 8 for gave in host.collect(launches[0]).values())
    assert not [name for name in seen.calls if any(wait in name for wait in WAITS)]
    # The fill of the counts, the graph, and the copy of the ring to the host.
    assert sorted(launch.total() for launch in seen.launches)[:-1] == [1, 1]
    assert seen.calls["cudaLaunchKernel"] == seen.calls["cudaMemcpyAsync"] == 1
    assert seen.graph["look"] > 1


def test_a_launch_runs_the_kernels_of_one_step_and_a_look_over_and_over(host: Host) -> None:
    step = trace(lambda: host.resident.launch(1)).graph
    assert step.total() == NODES
    loop = trace(lambda: host.resident.launch(8)).graph
    looks = loop.pop("look")
    once = _kernels(step)
    rounds = {Fraction(count, once[name]) for name, count in _kernels(loop).items()}
    assert _kernels(loop).keys() == once.keys()
    # Before the first step, and after each. On a busy machine the profiler loses some of a loop:
    # never a kind of kernel, and it never sees one more often than it ran.
    assert all(1 <= each <= 8 for each in rounds), rounds
    assert 1 <= looks <= 9


def _kernels(found: Counter[str]) -> Counter[str]:
    """Without copies and fills: inside a loop the driver makes them with kernels of its own."""
    moves = ("memcpy", "memset")
    return Counter({n: c for n, c in found.items() if not n.lower().startswith(moves)})
