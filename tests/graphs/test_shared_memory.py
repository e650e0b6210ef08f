"""Recordings that share their working memory: one piece for all, and still the right results."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from ostinato import UsageError, graphed
from ostinato.graphs import Outcome


def spread(x: Tensor) -> Tensor:
    """Needs working memory far larger than its input."""
    return (x[:, None] * torch.arange(4096.0, device=x.device)).cumsum(dim=1).sum(dim=1)


def sizes(device: torch.device) -> list[Tensor]:
    return [torch.rand(rows, device=device) for rows in (256, 64, 128, 1, 512)]


def test_each_recording_gives_the_results_of_eager_in_any_order(
    device: torch.device, backend_name: str
) -> None:
    runner = graphed(spread, admit_after=1, memory="shared", backend=backend_name)  # type: ignore[arg-type]
    given = sizes(device)
    with torch.no_grad():
        expected = [spread(x) for x in given]
        for x in given:
            runner(x)
        for order in ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1)):
            found = {at: runner(given[at]) for at in order}
            assert runner.last is not None
            assert runner.last.outcome is Outcome.REPLAYED
            for at, result in found.items():
                assert torch.equal(result, expected[at])


@pytest.mark.gpu
def test_all_together_take_about_as_much_as_the_largest() -> None:
    device = torch.device("cuda:0")
    with torch.no_grad():
        runner = graphed(spread, admit_after=1, memory="shared")
        for x in sizes(device):
            runner(x)
        together = runner.report().bytes
        runner.close()
        alone = graphed(spread, admit_after=1)
        for x in sizes(device):
            alone(x)
    largest = max(graph.bytes for graph in alone.report().graphs)
    assert together < 1.5 * largest
    assert alone.report().bytes > 1.7 * largest


@pytest.mark.gpu
def test_memory_is_given_back_with_the_last_recording_and_taken_anew() -> None:
    device = torch.device("cuda:0")
    with torch.no_grad():
        runner = graphed(spread, admit_after=1, memory="shared")
        given = sizes(device)
        for _ in range(3):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved()
            for x in given:
                runner(x)
                assert torch.equal(runner(x), spread(x))
            runner.invalidate()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            assert torch.cuda.memory_reserved() <= before + (2 << 20)


def test_threads_take_turns(device: torch.device, backend_name: str) -> None:
    runner = graphed(spread, admit_after=1, memory="shared", backend=backend_name)  # type: ignore[arg-type]
    given = sizes(device)
    wrong: list[int] = []

    def call(at: int) -> None:
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        with torch.no_grad(), torch.cuda.stream(stream):
            expected = spread(given[at])
            for _ in range(20):
                if not torch.equal(runner(given[at]), expected):
                    wrong.append(at)

    if device.type == "cuda":
        torch.cuda.synchronize()
    with torch.no_grad():
        for x in given:
            runner(x)
    threads = [threading.Thread(target=call, args=(at,)) for at in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_leases_are_refused_where_another_recording_could_overwrite_them() -> None:
    with pytest.raises(UsageError, match="another recording overwrites") as caught:
        graphed(spread, memory="shared", outputs="leased")
    assert caught.value.code == "OST1011"
