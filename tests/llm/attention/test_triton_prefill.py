"""Triton prefill: a token gathers what was cached before its chunk, and its own past."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from llm.attention.paged_case import TOLERANCE, PagedCase

pytest.importorskip("triton")

from ostinato.llm.attention import PrefillBatch, PromptChunk, pack
from ostinato.llm.attention.triton_attention import TritonAttention

# Where each chunk begins, and where it ends: a whole prompt, a later part, one token, one page.
SPANS = ((0, 5), (37, 80), (70, 71), (16, 32))
MODES = pytest.mark.parametrize("is_invariant", [False, True], ids=["tiles", "invariant"])


def case_of(
    spans: Sequence[tuple[int, int]],
    heads: tuple[int, int, int],
    device: torch.device,
    *,
    window: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> PagedCase:
    return PagedCase.of(
        [end for _, end in spans],
        heads=heads[0],
        kv_heads=heads[1],
        size=heads[2],
        window=window,
        dtype=dtype,
        device=device,
    )


def batch_of(
    case: PagedCase,
    spans: Sequence[tuple[int, int]],
    tokens_wide: int | None = None,
    chunks_wide: int | None = None,
) -> PrefillBatch:
    chunks = [
        PromptChunk([1] * (end - start), start, case.pages_BP[row].tolist())
        for row, (start, end) in enumerate(spans)
    ]
    return pack(
        chunks,
        page_tokens=case.store.page_tokens,
        device=case.lengths_B.device,
        tokens_wide=tokens_wide,
        pages_wide=case.pages_BP.shape[1],
        chunks_wide=chunks_wide,
    )


def prefill(
    case: PagedCase, q_THD: Tensor, batch: PrefillBatch, *, is_invariant: bool = False
) -> Tensor:
    attention = TritonAttention.on(
        case.shape,
        device=q_THD.device,
        dtype=q_THD.dtype,
        is_invariant=is_invariant,
        programs=5 if q_THD.device.type == "cpu" else None,
    )
    return attention.prefill(1, q_THD, case.store, batch)


def assert_right(
    case: PagedCase, spans: Sequence[tuple[int, int]], q_THD: Tensor, found_THD: Tensor
) -> None:
    tolerance, at = TOLERANCE[found_THD.dtype], 0
    for row, (start, end) in enumerate(spans):
        for position in range(start, end):
            expected = case.expected(q_THD[at], row, position)
            assert_close(found_THD[at].double(), expected, rtol=tolerance, atol=tolerance)
            at += 1
    assert not found_THD[at:].any()


@pytest.mark.parametrize(
    ("heads", "is_invariant"),
    [
        ((4, 2, 64), False),
        ((3, 3, 80), False),
        ((8, 1, 128), False),
        ((9, 3, 16), False),
        ((2, 1, 16), True),
    ],
)
def test_a_token_gathers_what_was_cached_and_its_own_past(
    heads: tuple[int, int, int], is_invariant: bool, kernel_device: torch.device
) -> None:
    case = case_of(SPANS, heads, kernel_device)
    batch = batch_of(case, SPANS)
    q = case.queries(len(batch.tokens_T))
    assert_right(case, SPANS, q, prefill(case, q, batch, is_invariant=is_invariant))


@MODES
@pytest.mark.parametrize("window", [1, 20, 64])
def test_a_token_sees_only_its_window(
    window: int, is_invariant: bool, kernel_device: torch.device
) -> None:
    case = case_of(SPANS, (2, 1, 16), kernel_device, window=window)
    batch = batch_of(case, SPANS)
    q = case.queries(len(batch.tokens_T))
    assert_right(case, SPANS, q, prefill(case, q, batch, is_invariant=is_invariant))


@MODES
def test_padding_tokens_and_padding_chunks_are_zero(
    is_invariant: bool, kernel_device: torch.device
) -> None:
    case = case_of(SPANS, (2, 1, 16), kernel_device)
    batch = batch_of(case, SPANS, tokens_wide=80, chunks_wide=7)
    q = case.queries(80)
    q[int(batch.row_start[-1]) :] = torch.nan
    assert_right(case, SPANS, q, prefill(case, q, batch, is_invariant=is_invariant))


def test_in_the_invariant_mode_a_token_has_the_same_bits_decoded_or_in_any_chunk(
    kernel_device: torch.device,
) -> None:
    spans = ((121, 140), (0, 3))
    case = case_of(spans, (2, 1, 16), kernel_device)
    q = case.queries(22)
    whole = prefill(case, q, batch_of(case, spans), is_invariant=True)
    late = ((133, 140),)
    assert torch.equal(
        prefill(case, q[12:19], batch_of(case, late), is_invariant=True), whole[12:19]
    )
    attention = TritonAttention.on(
        case.shape, device=q.device, dtype=q.dtype, is_invariant=True, programs=3
    )
    decoded = attention.decode(1, q[[18, 21]], case.store, case.pages_BP, case.lengths_B)
    assert torch.equal(decoded, whole[[18, 21]])


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("heads", "dtype"),
    [
        ((8, 8, 64), BF16),
        ((9, 3, 64), BF16),
        ((32, 8, 128), BF16),
        ((4, 2, 80), FP16),
        ((8, 1, 128), FP16),
        ((28, 4, 128), BF16),
        ((4, 1, 256), BF16),
        ((9, 3, 64), FP32),
        ((4, 1, 256), FP32),
    ],
)
@pytest.mark.parametrize("window", [None, 100])
def test_long_chunks_on_a_gpu(
    heads: tuple[int, int, int], dtype: torch.dtype, window: int | None
) -> None:
    spans = ((0, 300), (20_000 - 65, 20_000), (999, 1000), (128, 257), (0, 1))
    case = case_of(spans, heads, torch.device("cuda:0"), window=window, dtype=dtype)
    batch = batch_of(case, spans, tokens_wide=512, chunks_wide=8)
    q = case.queries(512)
    assert_right(case, spans, q, prefill(case, q, batch))


@pytest.mark.gpu
def test_a_recorded_prefill_serves_every_layout() -> None:
    layouts: list[tuple[tuple[int, int], ...]] = [((0, 200),), ((16, 40), (0, 7)), ((299, 300),)]
    case = case_of(((0, 300), (0, 300)), (8, 2, 64), torch.device("cuda:0"), dtype=torch.bfloat16)
    q = case.queries(256)
    fixed = batch_of(case, layouts[0], 256, 2)
    attention = TritonAttention.on(case.shape, device=q.device, dtype=q.dtype, is_invariant=False)
    attention.prefill(1, q, case.store, fixed)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = attention.prefill(1, q, case.store, fixed)
    for spans in layouts:
        new = batch_of(case, spans, 256, 2)
        for name in ("row_start_S1", "pages_SP", "lengths_S", "starts_S", "positions_T"):
            getattr(fixed, name).copy_(getattr(new, name))
        graph.replay()
        assert_right(case, spans, q, found)
