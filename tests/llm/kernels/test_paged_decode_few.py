"""Attention of a few rows: every row gathers its own tokens, however its keys are cut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from llm.attention.paged_case import SCALE, TOLERANCE, PagedCase

pytest.importorskip("triton")

from ostinato.llm.kernels.paged_decode import Workspace
from ostinato.llm.kernels.paged_decode_few import FewRowsPlan, paged_decode_few

LENGTHS = (1, 16, 0, 150, 17)
NEVER = 2**30


def decode(case: PagedCase, q_BHD: Tensor, plan: FewRowsPlan, *, is_early: bool = False) -> Tensor:
    shape = case.shape
    count = plan.programs(len(q_BHD), shape.heads)
    shared = Workspace.empty(2 * count, count, shape.group, shape.head_dim, q_BHD.device)
    found = paged_decode_few(
        q_BHD,
        case.store.keys[1],
        case.store.values[1],
        case.pages_BP,
        case.lengths_B,
        scale=SCALE,
        window=shape.windows[1],
        plan=plan,
        shared=shared,
        is_early=is_early,
    )
    assert not shared.arrived.any()
    return found


def assert_right(case: PagedCase, q_BHD: Tensor, found_BHD: Tensor) -> None:
    tolerance = TOLERANCE[found_BHD.dtype]
    for row, length in enumerate(case.lengths_B.tolist()):
        if length == 0:
            assert not found_BHD[row].any()
        else:
            expected = case.expected(q_BHD[row], row, length - 1)
            assert_close(found_BHD[row].double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(4, 2, 64), (3, 3, 80), (6, 1, 16)])
@pytest.mark.parametrize(
    "plan",
    [
        FewRowsPlan(3, 16, 1, NEVER),
        FewRowsPlan(1, 64, 2, NEVER),
    ],
)
def test_every_row_gathers_its_own_tokens(
    heads: int, kv_heads: int, size: int, plan: FewRowsPlan, kernel_device: torch.device
) -> None:
    case = PagedCase.of(LENGTHS, heads=heads, kv_heads=kv_heads, size=size, device=kernel_device)
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(case, q, plan))


@pytest.mark.parametrize("window", [1, 16, 20, 100])
def test_a_row_sees_only_its_window(window: int, kernel_device: torch.device) -> None:
    case = PagedCase.of(LENGTHS, heads=2, kv_heads=1, size=32, window=window, device=kernel_device)
    # Pages before every window may have been given away.
    for row, length in enumerate(LENGTHS):
        case.pages_BP[row, : max(length - window, 0) // 16] = 2**30
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(case, q, FewRowsPlan(3, 16, 1, NEVER)))


@pytest.mark.parametrize("long", [150, 151])
def test_rows_from_a_length_on_are_shared_out_differently(
    long: int, kernel_device: torch.device
) -> None:
    case = PagedCase.of(LENGTHS, heads=4, kv_heads=2, size=16, device=kernel_device)
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(case, q, FewRowsPlan(2, 16, 1, long, 16)))


@pytest.mark.gpu
@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("heads", [(32, 8, 128), (9, 3, 64), (8, 1, 80), (32, 8, 64)])
@pytest.mark.parametrize("rows", [1, 4, 33])
def test_random_lengths_on_a_gpu(rows: int, heads: tuple[int, int, int], is_early: bool) -> None:
    for longest in (1, 300, 3000, 20_000):
        lengths = torch.randint(0, longest + 1, (rows,)).tolist()
        lengths[-1] = longest
        case = PagedCase.of(
            lengths,
            heads=heads[0],
            kv_heads=heads[1],
            size=heads[2],
            dtype=torch.bfloat16,
            device=torch.device("cuda:0"),
        )
        q = case.queries(rows)
        plan = FewRowsPlan(8, 64, 4, 4096)
        assert_right(case, q, decode(case, q, plan, is_early=is_early))
