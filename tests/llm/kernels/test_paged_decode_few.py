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
HEADS = pytest.mark.parametrize("ahead", [0, 2], ids=["apart", "together"])


def decode(case: PagedCase, q_BHD: Tensor, plan: FewRowsPlan, *, is_early: bool = False) -> Tensor:
    shape = case.shape
    count = plan.programs(len(q_BHD), shape.heads, shape.kv_heads)
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
        FewRowsPlan(3, 16, 1, 200, ahead=2),
        FewRowsPlan(1, 64, 2, 151, ahead=4),
        FewRowsPlan(1, 256, 2, 1000, ahead=1),
        FewRowsPlan(1, 64, 2, 151, ahead=1, least=21),
    ],
)
def test_every_row_gathers_its_own_tokens(
    heads: int, kv_heads: int, size: int, plan: FewRowsPlan, kernel_device: torch.device
) -> None:
    case = PagedCase.of(LENGTHS, heads=heads, kv_heads=kv_heads, size=size, device=kernel_device)
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(case, q, plan))


@HEADS
@pytest.mark.parametrize("window", [1, 16, 20, 100])
def test_a_row_sees_only_its_window(window: int, ahead: int, kernel_device: torch.device) -> None:
    case = PagedCase.of(LENGTHS, heads=2, kv_heads=1, size=32, window=window, device=kernel_device)
    # Pages before every window may have been given away.
    for row, length in enumerate(LENGTHS):
        case.pages_BP[row, : max(length - window, 0) // 16] = 2**30
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(case, q, FewRowsPlan(3, 16, 1, 200, ahead=ahead)))


# Said by numpy, in which the interpreter computes.
@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:All-NaN slice")
@HEADS
def test_a_number_that_is_none_stays_in_its_row(ahead: int, kernel_device: torch.device) -> None:
    case = PagedCase.of((70, 0, 70), heads=2, kv_heads=1, size=16, device=kernel_device)
    q = case.queries(3)
    q[:2] = torch.nan
    found = decode(case, q, FewRowsPlan(2, 32, 1, 200, ahead=ahead))
    assert found[0].isnan().all()
    assert not found[1].any()
    assert_close(found[2].double(), case.expected(q[2], 2, 69), rtol=2e-5, atol=2e-5)


@HEADS
@pytest.mark.parametrize(("long", "least"), [(150, 0), (150, 50), (151, 50)])
def test_rows_from_a_length_on_are_shared_out_differently(
    long: int, least: int, ahead: int, kernel_device: torch.device
) -> None:
    case = PagedCase.of(LENGTHS, heads=4, kv_heads=2, size=16, device=kernel_device)
    q = case.queries(len(LENGTHS))
    plan = FewRowsPlan(2, 16, 1, long, 16, ahead=ahead, least=least)
    assert_right(case, q, decode(case, q, plan))


def test_there_are_as_many_programs_as_long_rows_want() -> None:
    plan = FewRowsPlan(2, 64, 4, 1000, ahead=3, least=264)
    assert plan.grid(32, 9, 3) == (2, 3, 44)
    assert plan.grid(45, 9, 3) == (2, 3, 45)
    assert plan.programs(45, 9, 3) == 270


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
        for plan in (
            FewRowsPlan(8, 64, 4, 4096),
            FewRowsPlan(1, 64, 4, 4096, 64, ahead=3),
            FewRowsPlan(2, 128, 8, 1000, 64, ahead=1),
        ):
            assert_right(case, q, decode(case, q, plan, is_early=is_early))
