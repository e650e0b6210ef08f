"""Empty batches, and a largest size of one (tokenspeed#493, cudnn-frontend#404: crash at 0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import check_eager, check_replay, record
from ostinato import Buckets, Lease, Outcome, Reason, graphed

STEPS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 4).requires_grad_(False), (0, 4)),
    "softmax": (lambda x: torch.softmax(x, -1), (0, 4)),
    "mean": (lambda x: x.mean(0), (0, 4)),
    "sum": (lambda x: x.sum(), (0,)),
    "no-columns": (lambda x: x.sum(1), (4, 0)),
    "attention": (lambda x: nn.functional.scaled_dot_product_attention(x, x, x), (0, 2, 3, 4)),
    "dict": (lambda x: {"y": x * 2, "n": x.shape[0], "none": None}, (0, 4)),
    "mask": (lambda x: x[x > 0], (0,)),
}


@pytest.mark.parametrize("kind", STEPS)
def test_an_empty_batch_runs_eagerly_with_the_reason(kind: str, device: torch.device) -> None:
    fn, shape = STEPS[kind]
    if isinstance(fn, nn.Module):
        fn = fn.to(device)
    g = graphed(fn, admit_after=1)
    for _ in range(3):
        check_eager(g, Reason.EMPTY_BATCH, torch.zeros(*shape, device=device))
    assert g.report().recordings == 0
    if isinstance(fn, nn.Module):
        fn.to("cpu")


def test_empty_batches_between_full_ones_disturb_no_recording(device: torch.device) -> None:
    g = record(lambda x: x * 2, torch.ones(4, device=device))
    for _ in range(3):
        check_eager(g, Reason.EMPTY_BATCH, torch.zeros(0, device=device))
        check_replay(g, torch.randn(4, device=device))


@pytest.mark.parametrize("sizes", [(1,), (1, 4), (4,)])
def test_an_empty_batch_fits_no_bucket(sizes: tuple[int, ...], device: torch.device) -> None:
    g = graphed(lambda x: x * 2, admit_after=1, buckets={"x": Buckets(0, sizes)})
    for rows in (0, 1, 0, 1):
        x = torch.randn(rows, 4, device=device)
        alike(g(x), x * 2)
    assert g.report().reasons == {"empty-batch": 2}
    assert g.report().replays == 1


def test_a_largest_size_of_one_serves_one_row_and_no_more(device: torch.device) -> None:
    g = graphed(lambda x: x.cumsum(0), admit_after=1, buckets={"x": Buckets(0, (1,))})
    g(torch.randn(1, 4, device=device))
    for _ in range(2):
        check_replay(g, torch.randn(1, 4, device=device))
        check_eager(g, Reason.OUTSIDE_BUCKETS, torch.randn(2, 4, device=device))
        check_eager(g, Reason.EMPTY_BATCH, torch.randn(0, 4, device=device))


def test_an_empty_past_beside_a_full_token_runs_eagerly(device: torch.device) -> None:
    """The first step of every decoder: nothing is in the cache yet."""

    def step(token: Tensor, past: Tensor) -> Tensor:
        return torch.cat((past, token), 1)

    g = graphed(step, admit_after=1)
    token = torch.randn(1, 1, 4, device=device)
    check_eager(g, Reason.EMPTY_BATCH, token, torch.zeros(1, 0, 4, device=device))
    g(token, torch.randn(1, 1, 4, device=device))
    check_replay(g, token, torch.randn(1, 1, 4, device=device))


def test_an_empty_result_of_a_full_batch_is_recorded(device: torch.device) -> None:
    g = record(lambda x: (x[:0], x * 2, x.new_zeros(0, 3)), torch.randn(4, device=device))
    for _ in range(2):
        check_replay(g, torch.randn(4, device=device))


def test_an_empty_batch_comes_as_a_lease_where_leases_were_asked_for(
    device: torch.device,
) -> None:
    g = graphed(lambda x: x * 2, admit_after=1, outputs="leased")
    lease: Any = g(torch.zeros(0, 3, device=device))
    assert isinstance(lease, Lease)
    assert lease.get().shape == (0, 3)


def test_an_empty_batch_raises_nothing_where_unfit_calls_raise(device: torch.device) -> None:
    g = graphed(lambda x: x * 2, admit_after=1, on_unfit="raise")
    assert g(torch.zeros(0, 3, device=device)).shape == (0, 3)
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.EMPTY_BATCH)


def test_warming_with_an_empty_batch_makes_no_recording(device: torch.device) -> None:
    g = graphed(lambda x: x * 2)
    decision = g.warm(torch.zeros(0, 3, device=device))
    assert (decision.outcome, decision.reason) == (Outcome.EAGER, Reason.EMPTY_BATCH)


def test_a_call_without_any_tensor_is_right(device: torch.device) -> None:
    g = graphed(lambda n, place: torch.ones(n, device=place), admit_after=1)
    for n in (2, 0, 2, 3):
        alike(g(n, str(device)), torch.ones(n, device=device))
