"""Sdpa: paged attention equals attention written out, whatever else lies in the pages."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from ostinato.llm.attention import AttentionShape, PromptChunk, SdpaAttention, pack
from ostinato.llm.kv.store import KvStore

CPU = torch.device("cpu")
HEADS, KV_HEADS, SIZE, PAGE = 6, 2, 16, 4
SCALE = 0.3
CASES = pytest.mark.parametrize("window", [None, 1, 7])
WAYS = pytest.mark.parametrize("in_blocks", [True, False])


def backend(window: int | None, *, in_blocks: bool) -> SdpaAttention:
    shape = AttentionShape(HEADS, KV_HEADS, SIZE, (1.0, SCALE), (None, window))
    return SdpaAttention(shape, in_blocks=in_blocks)


def poisoned_store(pages: int) -> KvStore:
    store = KvStore(2, pages, PAGE, KV_HEADS, SIZE, torch.float32, CPU)
    store.keys.fill_(torch.nan)
    store.values.fill_(torch.inf)
    return store


def put(store: KvStore, k_TGD: Tensor, v_TGD: Tensor, pages: list[int]) -> None:
    """Store one sequence in layer 1."""
    slots = [pages[at // PAGE] * PAGE + at % PAGE for at in range(len(k_TGD))]
    store.write(1, k_TGD, v_TGD, torch.tensor(slots))


def written_out(q_HD: Tensor, k_TGD: Tensor, v_TGD: Tensor, window: int | None) -> Tensor:
    """Attend one query at the last position, head by head."""
    seen = slice(0 if window is None else max(0, len(k_TGD) - window), None)
    rows = []
    for head, q in enumerate(q_HD):
        group = head * KV_HEADS // HEADS
        weights = (k_TGD[seen, group] @ q * SCALE).softmax(0)
        rows.append(weights @ v_TGD[seen, group])
    return torch.stack(rows)


@CASES
@WAYS
def test_decode_reads_the_rows_pages_up_to_its_length(window: int | None, in_blocks: bool) -> None:
    store = poisoned_store(40)
    lengths, tables = (1, 4, 23), [[9], [3], [7, 1, 30, 2, 39, 12]]
    k, v = torch.randn(3, 23, KV_HEADS, SIZE), torch.randn(3, 23, KV_HEADS, SIZE)
    for row, (length, pages) in enumerate(zip(lengths, tables, strict=True)):
        put(store, k[row, :length], v[row, :length], pages)
    # Page numbers behind a row's own pages are no page numbers.
    table = torch.tensor([pages + [777] * (8 - len(pages)) for pages in tables] + [[99] * 8])
    q = torch.randn(4, HEADS, SIZE)
    found = backend(window, in_blocks=in_blocks).decode(
        1, q, store, table.int(), torch.tensor([*lengths, 0], dtype=torch.int32)
    )
    for row, length in enumerate(lengths):
        expected = written_out(q[row], k[row, :length], v[row, :length], window)
        assert_close(found[row], expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found[3], torch.zeros(HEADS, SIZE))


@CASES
@WAYS
def test_prefill_sees_what_was_cached_and_its_own_past(window: int | None, in_blocks: bool) -> None:
    store = poisoned_store(140)
    spans, tables = (
        [(0, 5), (6, 150), (300, 301)],
        [[2, 8], list(range(20, 58)), list(range(60, 136))],
    )
    order = [pages[::-1] for pages in tables]
    k, v = torch.randn(3, 301, KV_HEADS, SIZE), torch.randn(3, 301, KV_HEADS, SIZE)
    for row in range(3):
        put(store, k[row, : spans[row][1]], v[row, : spans[row][1]], order[row])
    chunks = [
        PromptChunk([1] * (end - start), start, pages)
        for (start, end), pages in zip(spans, order, strict=True)
    ]
    batch = pack(chunks, page_tokens=PAGE, device=CPU, tokens_wide=160, pages_wide=80)
    q = torch.randn(160, HEADS, SIZE)
    found = backend(window, in_blocks=in_blocks).prefill(1, q, store, batch)
    at = 0
    for row, (start, end) in enumerate(spans):
        for position in range(start, end):
            expected = written_out(q[at], k[row, : position + 1], v[row, : position + 1], window)
            assert_close(found[at], expected, rtol=1e-5, atol=1e-5)
            at += 1
    assert torch.equal(found[at:], torch.zeros(160 - at, HEADS, SIZE))


def test_a_number_that_is_none_stays_in_its_row() -> None:
    store = poisoned_store(10)
    k, v = torch.randn(4, KV_HEADS, SIZE), torch.randn(4, KV_HEADS, SIZE)
    put(store, k, v, [4])
    put(store, k, v, [5])
    table, lengths = torch.tensor([[4], [5]], dtype=torch.int32), torch.tensor([4, 4])
    q = torch.randn(2, HEADS, SIZE)
    q[0] = torch.nan
    found = backend(None, in_blocks=True).decode(1, q, store, table, lengths)
    assert found[0].isnan().all()
    assert found[1].isfinite().all()


@WAYS
def test_a_padding_row_is_zero_even_if_its_query_is_no_number(in_blocks: bool) -> None:
    store = poisoned_store(4)
    q = torch.full((2, HEADS, SIZE), torch.nan)
    table, lengths = torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    found = backend(None, in_blocks=in_blocks).decode(1, q, store, table, lengths)
    assert torch.equal(found, torch.zeros(2, HEADS, SIZE))
