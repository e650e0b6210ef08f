"""Leases: no copy, and never a stale value without an error."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from graphs.replaying import record, spoil
from ostinato import StaleLease, graphed
from ostinato.graphs import Buckets, Lease, Outcome


def values(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


def leased(fn: Any, *args: Any, **options: Any) -> Any:
    return record(fn, *args, outputs="leased", **options)


def test_a_lease_is_the_recordings_own_memory(device: torch.device) -> None:
    g = leased(lambda x: {"y": x + 1, "n": None, "k": 2}, values(device, 3))
    x = values(device, 3)
    spoil(g)
    result = g(x)
    assert g.last.outcome is Outcome.REPLAYED
    assert isinstance(result["y"], Lease)
    assert result["n"] is None
    assert result["k"] == 2
    assert torch.equal(result["y"].get(), x + 1)
    made = g._store.graphs()[0].hand_out.made[0]
    assert result["y"].get().data_ptr() == made.data_ptr()


def test_a_lease_is_stale_once_the_recording_ran_again(device: torch.device) -> None:
    g = leased(lambda x: x + 1, values(device, 3))
    first = g(values(device, 3))
    second = g(values(device, 3))
    assert first.is_stale
    assert not second.is_stale
    with pytest.raises(StaleLease, match="has run again") as caught:
        first.get()
    assert caught.value.code == "OST1015"
    assert "stale lease" in repr(first)


@pytest.mark.parametrize("name", ["shape", "clone", "cpu"])
def test_who_takes_a_lease_for_the_tensor_is_told_how_to_get_it(name: str) -> None:
    lease = Lease(torch.ones(3))
    with pytest.raises(AttributeError, match=rf"no '{name}': lease.get\(\) is the tensor"):
        getattr(lease, name)
    for copied in (copy.deepcopy(lease), pickle.loads(pickle.dumps(lease))):
        assert torch.equal(copied.get(), lease.get())


@pytest.mark.parametrize("end", ["close", "invalidate"])
def test_a_lease_is_stale_once_the_recording_is_gone(end: str, device: torch.device) -> None:
    g = leased(lambda x: x + 1, values(device, 3))
    lease = g(values(device, 3))
    g.close() if end == "close" else g.invalidate("test")
    with pytest.raises(StaleLease):
        lease.get()


def test_a_lease_is_stale_once_the_recording_was_evicted(device: torch.device) -> None:
    one = leased(lambda x: x + 1, values(device, 100)).report().to_dict()["graphs"][0]["bytes"]
    g = graphed(lambda x: x + 1, admit_after=1, outputs="leased", budget=one * 3 // 2)
    g(values(device, 100))
    lease = g(values(device, 100))
    assert g.last.outcome is Outcome.REPLAYED
    for size in range(101, 140):
        for _ in range(12):
            g(values(device, size))
    assert g.report().to_dict()["evictions"] >= 1
    with pytest.raises(StaleLease):
        lease.get()


def test_another_recording_of_the_runner_does_not_end_a_lease(device: torch.device) -> None:
    g = leased(lambda x: x + 1, values(device, 3))
    g(values(device, 4))
    x = values(device, 3)
    lease = g(x)
    g(values(device, 4))
    assert torch.equal(lease.get(), x + 1)


def test_a_lease_on_an_eager_result_never_goes_stale(device: torch.device) -> None:
    g = graphed(lambda x: x + 1, admit_after=2, outputs="leased")
    x = values(device, 3)
    eager, recorded = g(x), g(x)
    assert g.last.outcome is Outcome.RECORDED
    for _ in range(3):
        g(values(device, 3))
    g.close()
    after = g(x)
    for lease in (eager, recorded, after):
        assert torch.equal(lease.get(), x + 1)


def test_a_lease_on_the_callers_own_tensor_never_goes_stale(device: torch.device) -> None:
    g = leased(lambda x: (x, x[1:], x + 1), values(device, 3))
    x = values(device, 3)
    own, view, made = g(x)
    g(values(device, 3))
    assert own.get() is x
    assert torch.equal(view.get(), x[1:])
    assert made.is_stale


def test_a_leased_output_of_a_bucket_has_the_real_size(device: torch.device) -> None:
    buckets = {"x": Buckets(dim=0, sizes=(8,))}
    g = leased(lambda x: x + 1, values(device, 3), buckets=buckets)
    g(values(device, 6))  # the first padded call is checked against an eager one
    x = values(device, 5)
    spoil(g)
    assert torch.equal(g(x).get(), x + 1)


def test_a_leased_loop_that_feeds_results_back_is_right(device: torch.device) -> None:
    g = graphed(lambda x: x * 0.5 + 1, admit_after=1, outputs="leased")
    mine = theirs = values(device, 4)
    for _ in range(100):
        mine, theirs = g(mine).get(), theirs * 0.5 + 1
    torch.testing.assert_close(mine, theirs)
    assert g.last.outcome is Outcome.REPLAYED


def test_a_leased_replay_allocates_no_tensor_memory(device: torch.device) -> None:
    g = leased(lambda x: x + 1, values(device, 1000))
    x = values(device, 1000)
    for _ in range(3):
        g(x)
    gc.collect()
    pointers = {g(x).get().data_ptr() for _ in range(10)}
    assert len(pointers) == 1
