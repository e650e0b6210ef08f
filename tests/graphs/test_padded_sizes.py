"""Padded calls whose sizes, or whose written state, do not follow the rule are right: eagerly."""

import random
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ostinato import Buckets
from ostinato.graphs import Outcome, Reason, graphed

HALVES = nn.Conv1d(3, 5, 3, stride=2, padding=1).requires_grad_(False)

BENT: dict[str, Callable[[Tensor], Tensor]] = {
    "a convolution of stride 2": lambda x: HALVES(x.t()[None])[0].t(),
    "pooling by 2": lambda x: nn.functional.avg_pool1d(x.t()[None], 2)[0].t(),
    "the first two rows": lambda x: x[:2] * 1,
    "a view of the first two rows": lambda x: x[:2],
    "the first three rows": lambda x: x[:3] * 2,
    "the first six rows": lambda x: x[:6] * 2,
    "the last three rows": lambda x: x[-3:] * 2,
    "an eighth": lambda x: x[: x.shape[0] // 8 + 1] * 2,
}


@pytest.mark.parametrize("sizes", [(4, 8, 16), (8, 32), (16,), (1, 2, 4, 8, 16), (5, 10, 15)])
@pytest.mark.parametrize("name", BENT)
def test_an_output_that_bends_somewhere_is_never_cut_wrong(
    name: str, sizes: tuple[int, ...]
) -> None:
    step = BENT[name]
    for seed in range(2):
        draw = random.Random(seed)
        runner = graphed(step, buckets={"x": Buckets(0, sizes)}, admit_after=1)
        for _ in range(20):
            x = torch.randn(draw.randint(2 if "pool" in name else 1, sizes[-1]), 3)
            torch.testing.assert_close(runner(x), step(x))
        if "two" not in name:
            reasons = runner.report().reasons
            assert str(Reason.OUTPUT_SIZE_UNKNOWN) in reasons


class Counts(nn.Module):
    n: Tensor

    def __init__(self, device: torch.device, start: float) -> None:
        super().__init__()
        self.register_buffer("n", torch.full((), start, device=device))

    def forward(self, x: Tensor) -> Tensor:
        self.n.add_(x.shape[0])
        return x * 2


class Sums(Counts):
    def forward(self, x: Tensor) -> Tensor:
        self.n.add_((x + 1).sum())
        return x * 2


@pytest.mark.parametrize("kind", [Counts, Sums])
@pytest.mark.parametrize("start", [0.0, 100_000.0])
@pytest.mark.parametrize("first", [3, 4])
def test_padding_that_reaches_written_state_is_refused(
    kind: type[Counts], start: float, first: int, device: torch.device
) -> None:
    mine, theirs = kind(device, start), kind(device, start)
    runner = graphed(mine, buckets={"x": Buckets(0, (4, 8))}, admit_after=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in (first, 3, 2, 4, 1, 3):
            x = torch.ones(rows, 2, device=device)
            torch.testing.assert_close(runner(x), theirs(x))
            assert mine.n.item() == theirs.n.item()
    assert runner.last is not None
    # That it counts the rows shows in its code, before any padding does.
    reason = Reason.BRANCHES_ON_SIZE if kind is Counts else Reason.PADDING_LEAKS
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, reason)


def test_state_that_padding_does_not_reach_is_replayed(device: torch.device) -> None:
    total = torch.zeros(2, device=device)

    def step(x: Tensor) -> Tensor:
        total.add_(x.sum(0))
        return x * 2

    runner = graphed(step, buckets={"x": Buckets(0, (4, 8))}, admit_after=1)
    for _ in range(4):
        runner(torch.ones(3, 2, device=device))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    assert total.tolist() == [12.0, 12.0]
