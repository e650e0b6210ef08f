"""Shadow replays: every n-th is compared with an eager run, and a wrong recording goes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import record
from ostinato import Buckets, CaptureError
from ostinato.graphs import Outcome, Reason


def values(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


def breaks(runner: Any) -> None:
    """Make the only recording wrong: its replay does nothing from now on."""
    graph = runner._store.graphs()[0]
    recording = graph.recording

    class Idle:
        result, nodes, bytes = recording.result, recording.nodes, recording.bytes
        enter, release = staticmethod(recording.enter), staticmethod(recording.release)

        @staticmethod
        def replay() -> None:
            return None

    graph.recording = Idle


def test_a_replay_that_does_nothing_is_caught_at_the_next_check(device: torch.device) -> None:
    g = record(lambda x: x * 2, values(device, 3), verify_every=3)
    g(values(device, 3))
    breaks(g)
    for _ in range(2):
        x = values(device, 3)
        answer = g(x)
    assert torch.equal(answer, x * 2)
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.MISMATCH)
    for _ in range(4):
        x = values(device, 3)
        assert torch.equal(g(x), x * 2)
        assert g.last.outcome is Outcome.EAGER
    assert g.report().to_dict()["graphs"] == []


def test_with_on_unfit_raise_a_mismatch_is_an_error(device: torch.device) -> None:
    g = record(lambda x: x * 2, values(device, 3), verify_every=1, on_unfit="raise")
    breaks(g)
    with pytest.raises(CaptureError, match="off by"):
        g(values(device, 3))


def test_a_right_recording_passes_every_check(device: torch.device) -> None:
    g = record(lambda x: x * 2, values(device, 3), verify_every=1)
    for _ in range(5):
        x = values(device, 3)
        assert torch.equal(g(x), x * 2)
        assert g.last is not None
        assert g.last.outcome is Outcome.REPLAYED


def test_a_check_counts_once_in_buffers_and_random_state(device: torch.device) -> None:
    norm, twin = (nn.BatchNorm1d(2).to(device).requires_grad_(False) for _ in range(2))
    g = record(norm, values(device, 4, 2), verify_every=2)
    norm.load_state_dict(twin.state_dict())
    for _ in range(6):
        x = values(device, 4, 2)
        torch.testing.assert_close(g(x), twin(x))
    torch.testing.assert_close(dict(norm.state_dict()), dict(twin.state_dict()))


def test_an_input_that_the_function_writes_is_written_once_and_compared(
    device: torch.device,
) -> None:
    def step(x: Tensor) -> None:
        x.add_(1)

    g = record(step, values(device, 3), verify_every=1)
    x = torch.zeros(3, device=device)
    for _ in range(4):
        g(x)
    assert x.tolist() == [4.0, 4.0, 4.0]
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    breaks(g)
    g(x)
    assert x.tolist() == [5.0, 5.0, 5.0]
    assert g.last.reason is Reason.MISMATCH


def test_state_of_the_functions_own_is_compared_too(device: torch.device) -> None:
    seen = torch.zeros(3, device=device)

    def step(x: Tensor) -> None:
        seen.add_(x)

    g = record(step, values(device, 3), verify_every=1)
    seen.zero_()
    for _ in range(3):
        g(torch.ones(3, device=device))
    assert seen.tolist() == [3.0, 3.0, 3.0]
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    breaks(g)
    g(torch.ones(3, device=device))
    assert seen.tolist() == [4.0, 4.0, 4.0]
    assert g.last.reason is Reason.MISMATCH


def test_a_random_function_is_not_judged(device: torch.device) -> None:
    g = record(lambda x: x + torch.rand_like(x), values(device, 3), verify_every=1)
    for _ in range(3):
        g(values(device, 3))
        assert g.last is not None
        assert g.last.outcome is Outcome.REPLAYED


def test_a_check_poisons_the_padding_that_the_policy_keeps(device: torch.device) -> None:
    # "keep" leaves poison in the tail, so a function that reads it cannot pass.
    buckets = {"x": Buckets(dim=0, sizes=(8,), fill="keep", cut={})}
    g = record(lambda x: x * 2, values(device, 8), buckets={"x": Buckets(0, (8,), fill="keep")})
    g(values(device, 3))
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    h = record(lambda x: x.sum(), torch.zeros(8, device=device), buckets=buckets)
    x = values(device, 3)
    torch.testing.assert_close(h(x), x.sum())
    assert h.last is not None
    assert h.last.reason is Reason.PADDING_LEAKS


def test_leased_checks_hand_out_leases(device: torch.device) -> None:
    g = record(lambda x: x * 2, values(device, 3), verify_every=1, outputs="leased")
    x = values(device, 3)
    assert torch.equal(g(x).get(), x * 2)


def test_a_weight_that_changes_under_autocast_is_no_mismatch(device: torch.device) -> None:
    """Autocast's own cache would answer the eager run from the weight before the change."""
    module = nn.Linear(8, 8).to(device)
    x = values(device, 4, 8)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        g = record(module, x, verify_every=1)
        for _ in range(3):
            module(x)  # fills the cache
            module.weight.data.mul_(1.5)
            answer = g(x)
            torch.clear_autocast_cache()
            torch.testing.assert_close(answer, module(x))
            assert g.last is not None
            assert g.last.outcome is Outcome.REPLAYED, g.last
