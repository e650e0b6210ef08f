"""Triton decode: every row gathers its own tokens, whatever lies in the pages or beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from llm.attention.paged_case import TOLERANCE, PagedCase

pytest.importorskip("triton")

from ostinato.llm.attention.triton_attention import TritonAttention

# Page edges, one token, padding in the middle and at the end, and rows that several programs share.
LENGTHS = (1, 16, 0, 150, 15, 33, 17, 0)
HEADS = [(4, 2, 64), (3, 3, 80), (8, 1, 128), (9, 3, 16), (2, 2, 48)]
MODES = pytest.mark.parametrize("is_invariant", [False, True], ids=["shared", "invariant"])


def backend(case: PagedCase, *, is_invariant: bool = False, programs: int = 5) -> TritonAttention:
    return TritonAttention.on(
        case.shape,
        device=case.lengths_B.device,
        dtype=case.store.keys.dtype,
        is_invariant=is_invariant,
        programs=programs,
    )


def decode(attention: TritonAttention, case: PagedCase, q_BHD: Tensor) -> Tensor:
    return attention.decode(1, q_BHD, case.store, case.pages_BP, case.lengths_B)


def assert_right(case: PagedCase, q_BHD: Tensor, found_BHD: Tensor) -> None:
    tolerance = TOLERANCE[found_BHD.dtype]
    for row, length in enumerate(case.lengths_B.tolist()):
        if length == 0:
            assert not found_BHD[row].any()
        else:
            expected = case.expected(q_BHD[row], row, length - 1)
            assert_close(found_BHD[row].double(), expected, rtol=tolerance, atol=tolerance)


def rows_of(case: PagedCase, rows: Sequence[int]) -> PagedCase:
    return dataclasses.replace(
        case, pages_BP=case.pages_BP[rows].contiguous(), lengths_B=case.lengths_B[rows]
    )


@MODES
@pytest.mark.parametrize(("heads", "kv_heads", "size"), HEADS)
def test_every_row_gathers_its_own_tokens(
    heads: int, kv_heads: int, size: int, is_invariant: bool, kernel_device: torch.device
) -> None:
    case = PagedCase.of(LENGTHS, heads=heads, kv_heads=kv_heads, size=size, device=kernel_device)
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(backend(case, is_invariant=is_invariant), case, q))


@MODES
@pytest.mark.parametrize("window", [1, 16, 20, 100])
def test_a_row_sees_only_its_window(
    window: int, is_invariant: bool, kernel_device: torch.device
) -> None:
    case = PagedCase.of(LENGTHS, heads=4, kv_heads=2, size=32, window=window, device=kernel_device)
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(backend(case, is_invariant=is_invariant), case, q))


@MODES
def test_pages_before_the_window_may_have_been_given_away(
    is_invariant: bool, kernel_device: torch.device
) -> None:
    case = PagedCase.of((150,), heads=2, kv_heads=1, size=16, window=20, device=kernel_device)
    q = case.queries(1)
    expected = decode(backend(case, is_invariant=is_invariant), case, q)
    case.pages_BP[0, : (150 - 20) // 16] = 2**30
    assert torch.equal(decode(backend(case, is_invariant=is_invariant), case, q), expected)


@pytest.mark.parametrize("programs", [1, 2, 7, 40])
def test_however_many_programs_share_the_work_the_result_is_the_same(
    programs: int, kernel_device: torch.device
) -> None:
    case = PagedCase.of((300, 1, 129), heads=2, kv_heads=2, size=16, device=kernel_device)
    q = case.queries(3)
    assert_right(case, q, decode(backend(case, programs=programs), case, q))


def test_half_precision_sums_in_single(kernel_device: torch.device) -> None:
    case = PagedCase.of(
        LENGTHS, heads=4, kv_heads=2, size=64, dtype=torch.float16, device=kernel_device
    )
    q = case.queries(len(LENGTHS))
    assert_right(case, q, decode(backend(case), case, q))


@MODES
def test_a_workspace_serves_one_launch_after_another(
    is_invariant: bool, kernel_device: torch.device
) -> None:
    case = PagedCase.of((200, 90), heads=2, kv_heads=1, size=16, device=kernel_device)
    attention = backend(case, is_invariant=is_invariant)
    q = case.queries(2)
    first = decode(attention, case, q)
    assert torch.equal(decode(attention, case, q), first)
    if attention.shared is not None:
        assert not attention.shared.arrived.any()


def test_in_the_invariant_mode_a_row_has_the_same_bits_in_any_company(
    kernel_device: torch.device,
) -> None:
    lengths = (300, 1, 0, 170, 64, 129)
    case = PagedCase.of(lengths, heads=4, kv_heads=2, size=16, device=kernel_device)
    q = case.queries(len(lengths))
    whole = decode(backend(case, is_invariant=True), case, q)
    for rows in ([0], [3, 0], [5, 4, 3], [1, 2, 0, 0]):
        part = rows_of(case, rows)
        found = decode(backend(case, is_invariant=True, programs=3), part, q[rows])
        assert torch.equal(found, whole[rows])


# Said by numpy, in which the interpreter computes.
@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:All-NaN slice")
@MODES
def test_a_number_that_is_none_stays_in_its_row(
    is_invariant: bool, kernel_device: torch.device
) -> None:
    case = PagedCase.of((70, 0, 70), heads=2, kv_heads=1, size=16, device=kernel_device)
    q = case.queries(3)
    q[:2] = torch.nan
    found = decode(backend(case, is_invariant=is_invariant, programs=3), case, q)
    assert found[0].isnan().all()
    assert not found[1].any()
    assert_close(found[2].double(), case.expected(q[2], 2, 69), rtol=2e-5, atol=2e-5)


def test_scores_beyond_the_range_of_exp_do_no_harm(kernel_device: torch.device) -> None:
    case = PagedCase.of((200,), heads=2, kv_heads=1, size=16, device=kernel_device)
    q = case.queries(1) * 200
    assert_right(case, q, decode(backend(case), case, q))


@pytest.mark.parametrize("number", [torch.int32, torch.int64])
def test_tables_and_queries_may_be_cut_from_larger_ones(
    number: torch.dtype, kernel_device: torch.device
) -> None:
    case = PagedCase.of((40, 0, 21), heads=2, kv_heads=1, size=16, device=kernel_device)
    q = case.queries(6)[::2]
    wide = torch.full((3, 50), 2**30, dtype=number, device=kernel_device)
    wide[:, : case.pages_BP.shape[1]] = case.pages_BP
    cut = dataclasses.replace(
        case, pages_BP=wide[:, : case.pages_BP.shape[1]], lengths_B=case.lengths_B.to(number)
    )
    assert_right(cut, q, decode(backend(cut), cut, q))


def _kernel_case(**options: Any) -> PagedCase:
    return PagedCase.of(device=torch.device("cuda:0"), **options)


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "heads", "dtype"),
    [
        (1, (32, 8, 128), BF16),
        (3, (9, 3, 64), BF16),
        (32, (32, 8, 128), BF16),
        (129, (32, 8, 128), BF16),
        (300, (9, 3, 64), BF16),
        (300, (4, 2, 80), BF16),
        (33, (8, 1, 128), BF16),
        (17, (12, 12, 64), BF16),
        (31, (28, 4, 128), FP16),
        (300, (32, 8, 64), FP16),
        (5, (4, 1, 256), BF16),
        (29, (8, 4, 80), FP32),
        (300, (9, 3, 64), FP32),
        (2, (4, 1, 256), FP32),
    ],
)
def test_random_lengths_on_a_gpu(
    rows: int, heads: tuple[int, int, int], dtype: torch.dtype
) -> None:
    lengths = torch.randint(0, 600, (rows,)).tolist()
    lengths[0], lengths[-1] = 20_000, 1
    query_heads, kv_heads, size = heads
    case = _kernel_case(
        lengths=lengths, heads=query_heads, kv_heads=kv_heads, size=size, dtype=dtype
    )
    q = case.queries(rows)
    for is_invariant in (False, True):
        attention = TritonAttention.on(
            case.shape,
            device=case.lengths_B.device,
            dtype=dtype,
            is_invariant=is_invariant,
        )
        found = decode(attention, case, q)
        assert_right(case, q, found)
        assert torch.equal(decode(attention, case, q), found)


@pytest.mark.gpu
def test_on_a_gpu_a_row_has_the_same_bits_in_any_company() -> None:
    lengths = [*torch.randint(1, 3000, (63,)).tolist(), 20_000]
    case = _kernel_case(lengths=lengths, heads=32, kv_heads=8, size=128, dtype=torch.bfloat16)
    q = case.queries(len(lengths))
    attention = TritonAttention.on(case.shape, device=q.device, dtype=q.dtype, is_invariant=True)
    whole = decode(attention, case, q)
    for rows in ([63], [0], [5, 63, 7], list(range(64))[::-1]):
        assert torch.equal(decode(attention, rows_of(case, rows), q[rows]), whole[rows])


@pytest.mark.gpu
@MODES
def test_a_recorded_step_serves_every_length(is_invariant: bool) -> None:
    case = _kernel_case(lengths=[700, 300, 1], heads=8, kv_heads=2, size=64, dtype=torch.bfloat16)
    attention = TritonAttention.on(
        case.shape, device=case.lengths_B.device, dtype=torch.bfloat16, is_invariant=is_invariant
    )
    q = case.queries(3)
    decode(attention, case, q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = decode(attention, case, q)
    for lengths in ([700, 300, 1], [33, 0, 1], [0, 0, 0], [1, 299, 0]):
        case.lengths_B.copy_(torch.tensor(lengths))
        for _ in range(3):
            graph.replay()
        assert_right(case, q, found)
