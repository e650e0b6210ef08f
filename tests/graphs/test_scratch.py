"""Scratch: large memory that the extra runs of a recording may spoil, and that is never copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato import UsageError, graphed
from ostinato.graphs import Outcome
from ostinato.graphs.state import TensorState


class Cache:
    """A counter, and a store of which each run writes one place and adds to another."""

    def __init__(self, device: torch.device) -> None:
        self.store = torch.zeros(64, 8, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)

    def __call__(self, x: Tensor) -> Tensor:
        self.store.index_copy_(0, self.at, x[None] * 2)
        self.store[63].add_(1)
        self.at.add_(1)
        return self.store[:4].sum(dim=0)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all tensors whose contents a recording keeps."""
    sizes: list[int] = []
    keep = TensorState.__init__

    def noting(self: TensorState, tensors: Any) -> None:
        tensors = list(tensors)
        sizes.extend(tensor.numel() for tensor in tensors)
        keep(self, tensors)

    monkeypatch.setattr(TensorState, "__init__", noting)
    return sizes


def test_scratch_is_not_copied_and_all_else_is_put_back(
    device: torch.device, backend_name: str, copied: list[int]
) -> None:
    cache = Cache(device)
    runner = graphed(cache, admit_after=1, scratch=(cache.store,), backend=backend_name)
    x = torch.arange(8.0, device=device)
    with torch.no_grad():
        runner(x)
        assert runner.last is not None
        assert runner.last.outcome is Outcome.RECORDED
        assert cache.store.numel() not in copied
        assert cache.at.item() == 1  # the counter counts calls, not runs
        assert cache.store[63, 0] > 1  # what a run adds to scratch was added by every extra run
        result = runner(x + 1)
    assert runner.last.outcome is Outcome.REPLAYED
    assert cache.at.item() == 2
    assert torch.equal(cache.store[0], x * 2)
    assert torch.equal(cache.store[1], x * 2 + 2)
    assert torch.equal(result, x * 4 + 2)


def test_a_view_stands_for_the_memory_behind_it(
    device: torch.device, backend_name: str, copied: list[int]
) -> None:
    cache = Cache(device)
    runner = graphed(cache, admit_after=1, scratch=[cache.store[:1]], backend=backend_name)
    with torch.no_grad():
        runner(torch.ones(8, device=device))
    assert cache.store.numel() not in copied


def test_without_scratch_the_store_is_as_after_one_call(
    device: torch.device, backend_name: str, copied: list[int]
) -> None:
    cache = Cache(device)
    with torch.no_grad():
        graphed(cache, admit_after=1, backend=backend_name)(torch.ones(8, device=device))
    assert cache.store.numel() in copied
    assert cache.store[63, 0] == 1


def test_a_comparison_leaves_scratch_out(
    device: torch.device, backend_name: str, copied: list[int]
) -> None:
    cache = Cache(device)
    runner = graphed(
        cache, admit_after=1, scratch=(cache.store,), verify_every=1, backend=backend_name
    )
    with torch.no_grad():
        for _ in range(3):
            runner(torch.ones(8, device=device))
    assert runner.report().reasons == {}
    assert cache.store.numel() not in copied
    assert cache.store[63, 0] > 3  # its last line grows twice per compared call, and may
    assert cache.at.item() == 3


@pytest.mark.parametrize("scratch", [7, "keys", (torch.ones(2), 3), (torch.eye(2).to_sparse(),)])
def test_what_is_no_tensor_is_no_scratch(scratch: Any) -> None:
    with pytest.raises(UsageError, match="scratch cannot be") as caught:
        graphed(lambda: None, scratch=scratch)
    assert caught.value.code == "OST1011"
