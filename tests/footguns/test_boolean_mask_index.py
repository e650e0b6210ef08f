"""A forward whose shapes depend on values (pytorch#78549: "not permitted while capturing").

Never recorded, always right, and the message names the op and the user's line.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import check_refused
from graphs.replaying import check_replay, record
from ostinato import CaptureError, Outcome, Reason, graphed

Step = Callable[[Tensor], object]


def put_by_mask(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = y[x > 0] * 2  # two reads; the first is the one named
    return y


SHAPES: dict[str, tuple[Step, str, str]] = {
    "boolean-index": (lambda x: x[x > 0] * 2, "index", "x[x > 0] * 2"),
    "byte-index": (lambda x: x[(x > 0).bool()], "index", "(x > 0).bool()"),
    "put-by-mask": (put_by_mask, "index", "y[x > 0] = "),
    "nonzero": (lambda x: torch.nonzero(x > 0), "nonzero", "torch.nonzero(x > 0)"),
    "where": (lambda x: torch.where(x > 0)[0], "nonzero", "torch.where(x > 0)[0]"),
    "masked-select": (lambda x: x.masked_select(x > 0), "masked_select", "x.masked_select"),
    "unique": (lambda x: x.sign().unique(), "unique", "x.sign().unique()"),
    "repeat": (
        lambda x: x.repeat_interleave(torch.ones_like(x, dtype=torch.long)),
        "repeat_interleave",
        "x.repeat_interleave",
    ),
}

READS: dict[str, tuple[Step, str]] = {
    "branch": (lambda x: x * 2 if x.sum() > 0 else x * 3, "if x.sum() > 0"),
    "item": (lambda x: x * x.sum().item(), "x.sum().item()"),
    "tolist": (lambda x: x[: len(x.tolist()) // 2], "x.tolist()"),
    "slice-by-tensor": (lambda x: x[: (x > 0).sum()], "(x > 0).sum()"),
    "int": (lambda x: x.new_zeros(int((x > 0).sum())), "int((x > 0).sum())"),
    "equal": (lambda x: x * 2 if torch.equal(x, x) else x, "torch.equal(x, x)"),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_a_shape_that_depends_on_values_runs_eagerly_and_names_op_and_line(
    kind: str, device: torch.device
) -> None:
    fn, op, line = SHAPES[kind]
    x = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0, 6.0], device=device)
    check_refused(fn, Reason.DATA_DEPENDENT_SHAPE, x, op=op, line=line, file=__file__)


@pytest.mark.parametrize("kind", READS)
def test_a_value_read_by_python_runs_eagerly_and_names_the_line(
    kind: str, device: torch.device
) -> None:
    fn, line = READS[kind]
    x = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0, 6.0], device=device)
    check_refused(fn, Reason.HOST_SYNC, x, line=line, file=__file__)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), KeepPositive())

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).sum()


class KeepPositive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]  # the culprit


def test_the_line_named_is_the_innermost_one_of_the_user(device: torch.device) -> None:
    x = torch.randn(3, 4, device=device)
    g = graphed(Outer().to(device), admit_after=1)
    g(x)
    assert g.last is not None
    assert g.last.reason is Reason.DATA_DEPENDENT_SHAPE
    assert "return x[x > 0]" in g.last.detail


def test_the_next_call_with_other_values_has_its_own_shape(device: torch.device) -> None:
    g = graphed(lambda x: x[x > 0], admit_after=1)
    for positives in (0, 1, 5, 3):
        x = torch.full((5,), -1.0, device=device)
        x[:positives] = 2.0
        assert g(x).shape == (positives,)


def test_raise_on_unfit_raises_with_the_reason_and_the_line(device: torch.device) -> None:
    g = graphed(lambda x: x[x > 0], admit_after=1, on_unfit="raise")
    with pytest.raises(CaptureError, match=r"lambda x: x\[x > 0\]") as caught:
        g(torch.ones(3, device=device))
    assert caught.value.code == "data-dependent-shape"


def test_a_mask_that_only_chooses_values_is_recorded(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        y = x.clone()
        y[x > 0] = 0.0
        return torch.where(x > 1, y, x).masked_fill(x < -1, 7.0)

    g = record(step, torch.randn(6, device=device))
    for _ in range(3):
        check_replay(g, torch.randn(6, device=device))


def test_an_index_by_numbers_is_recorded(device: torch.device) -> None:
    g = record(
        lambda x, i: x[i], torch.randn(6, device=device), torch.tensor([0, 1], device=device)
    )
    for pair in ([5, 2], [3, 3]):
        check_replay(g, torch.randn(6, device=device), torch.tensor(pair, device=device))
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
