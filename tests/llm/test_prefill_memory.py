"""The numbers of one prefill after the other in one memory: as packed anew, and few are sent."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from ostinato.llm import prefill_memory
from ostinato.llm.attention.batch import PromptChunk, pack
from ostinato.llm.prefill_memory import PrefillMemory

CPU = torch.device("cpu")
PAGE_TOKENS = 16
CHUNKS, TOKENS = 8, 256


def chunks_of(random: Random, longest: int) -> list[PromptChunk]:
    chunks = []
    for _ in range(random.randint(1, CHUNKS)):
        count, start = random.randint(1, TOKENS // CHUNKS), random.randint(0, longest)
        filled = -(-(start + count) // PAGE_TOKENS)
        pages = [random.randint(1, 2**31 - 1) for _ in range(filled + random.randint(0, 2))]
        chunks.append(PromptChunk([random.randint(0, 2**31) for _ in range(count)], start, pages))
    return chunks


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
# A table of 20 pages a chunk is sent whole, and one of 20000 is not.
@pytest.mark.parametrize(("pages", "longest"), [(20, 250), (20_000, 250), (20_000, 300_000)])
def test_each_prefill_finds_its_own_numbers_and_nobody_elses(
    pages: int, longest: int, kind: str
) -> None:
    random, device = Random(pages), torch.device(kind)
    memory = PrefillMemory(TOKENS, CHUNKS, pages, PAGE_TOKENS, device)
    for _ in range(20):
        chunks = chunks_of(random, longest)
        used = sum(len(chunk.token_ids) for chunk in chunks)
        tokens, wide = random.randint(used, TOKENS), random.randint(len(chunks), CHUNKS)
        row_start = memory.send(chunks, tokens, wide)
        batch = memory.batch(tokens, wide, row_start)
        expected = pack(
            chunks, page_tokens=PAGE_TOKENS, device=device, tokens_wide=tokens, chunks_wide=wide
        )
        assert batch.row_start == expected.row_start
        for name in ("tokens_T", "positions_T", "slots_T", "row_start_S1", "lengths_S", "starts_S"):
            assert torch.equal(getattr(batch, name), getattr(expected, name)), name
        assert batch.pages_SP.shape == (wide, pages)
        for row, length in enumerate(batch.lengths_S.tolist()):
            filled = -(-length // PAGE_TOKENS)
            assert torch.equal(batch.pages_SP[row, :filled], expected.pages_SP[row, :filled])


def test_what_is_sent_does_not_grow_with_the_longest_prompt_there_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, empty = [], torch.empty

    def counting(size: int, **options: Any) -> Any:
        sizes.append(size)
        return empty(size, **options)

    chunks = [PromptChunk([1] * 128, 0, list(range(1, 9)))] * 64
    for pages in (8, 18, 8192):
        memory = PrefillMemory(8192, 64, pages, PAGE_TOKENS, CPU)
        with monkeypatch.context() as patch:
            patch.setattr(prefill_memory.torch, "empty", counting)
            memory.send(chunks, 8192, 64)
    assert sizes[2] == sizes[0] == 24 * 8192 + 4 * (3 * 64 + 1) + 4 * 64 * 8
    assert sizes[1] - sizes[0] == 4 * 64 * 10


def test_a_chunk_that_its_pages_do_not_hold_is_an_error_of_ours() -> None:
    memory = PrefillMemory(64, 4, 8, PAGE_TOKENS, CPU)
    with pytest.raises(AssertionError, match="1 pages for 17 tokens"):
        memory.send([PromptChunk([1] * 17, 0, [5])], 64, 4)
