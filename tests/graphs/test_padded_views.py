"""A view of a bucketed input comes back as the same view of the caller's tensor, at its size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphs.replaying import check_replay, record
from ostinato import Buckets
from ostinato.graphs.extents import Extent
from ostinato.graphs.outputs import HandOut

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "column": lambda x: x[:, 1],
    "transposed": lambda x: x.t(),
    "rows-from-the-second": lambda x: x[1:],
    "every-other-column": lambda x: x[:, ::2],
    "one-row": lambda x: x[1],
    "unsqueezed": lambda x: x[None],
    "whole": lambda x: x[:],
    "expanded": lambda x: x[None].expand(2, -1, -1),
    "one-row-expanded": lambda x: x[1:2].expand(3, -1),
    "one-column-expanded": lambda x: x[:, 1:2].expand(-1, 3),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dim", [0, 1])
def test_a_view_of_a_bucketed_input_is_one_of_the_callers_tensor(
    view: str, dim: int, device: torch.device
) -> None:
    if (view, dim) == ("every-other-column", 1):
        pytest.skip("its size is no multiple of the input's, so it is refused")

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        return VIEWS[view](x), x + 1

    def given(size: int) -> Tensor:
        return torch.randn((size, 4) if dim == 0 else (4, size), device=device)

    g = record(step, given(5), buckets={"x": Buckets(dim, (8,))})
    for size in (8, 3, 4):
        check_replay(g, given(size))
    turned = torch.randn(4, 4, device=device).t()
    mine, theirs = g(turned)[0], VIEWS[view](turned)
    assert (mine.data_ptr(), mine.shape) == (theirs.data_ptr(), theirs.shape)
    assert view == "unsqueezed" or mine.stride() == theirs.stride()


@pytest.mark.parametrize(
    "view", [lambda x: x.diagonal(), lambda x: x.view(-1), lambda x: x.unfold(0, 2, 1)]
)
def test_a_view_that_is_no_choice_along_dimensions_is_copied(
    view: Callable[[Tensor], Tensor],
) -> None:
    static = torch.arange(32.0).view(8, 4)
    recorded = view(static)
    whole = tuple(Extent(size, (0,)) for size in recorded.shape)
    handing = HandOut(recorded, [static], [0], [], [whole], frozenset({0}), recorded)
    copy = handing.own([torch.zeros(8, 4)], (8,))
    assert isinstance(copy, Tensor)
    assert torch.equal(copy, recorded)


def test_a_view_into_the_padding_is_copied() -> None:
    static = torch.arange(8.0)
    handing = HandOut(
        static[7:], [static], [0], [], [(Extent(1, (0,)),)], frozenset({0}), static[7:]
    )
    copy = handing.own([torch.zeros(3)], (3,))
    assert isinstance(copy, Tensor)
    assert copy.tolist() == [7.0]


def test_a_view_that_is_copied_may_lie_in_an_input_that_the_step_reads(
    device: torch.device,
) -> None:
    g = record(
        lambda x: (x * 2, x.view(-1)),
        torch.randn(5, 4, device=device),
        buckets={"x": Buckets(0, (8,))},
    )
    x = torch.randn(3, 4, device=device)
    doubled, flat = g(x)
    assert torch.equal(doubled, x * 2)
    assert torch.equal(flat, x.view(-1))
