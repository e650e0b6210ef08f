"""Batch: packed chunks say where each token stands and where it is kept."""

from __future__ import annotations

import pytest
import torch

from ostinato.llm.attention import PromptChunk, pack

CPU = torch.device("cpu")
CHUNKS = [PromptChunk((11, 12, 13), 3, (7, 2)), PromptChunk((14,), 0, (5, 6, 8))]


def test_tokens_positions_and_slots_stand_one_chunk_behind_the_other() -> None:
    batch = pack(CHUNKS, page_tokens=4, device=CPU)
    assert batch.tokens_T.tolist() == [11, 12, 13, 14]
    assert batch.positions_T.tolist() == [3, 4, 5, 0]
    assert batch.slots_T.tolist() == [7 * 4 + 3, 2 * 4, 2 * 4 + 1, 5 * 4]
    assert batch.row_start == (0, 3, 4)
    assert batch.row_start_S1.tolist() == [0, 3, 4]
    assert batch.lengths_S.tolist() == [6, 1]
    assert batch.starts_S.tolist() == [3, 0]


def test_a_table_holds_only_the_pages_that_hold_tokens() -> None:
    assert pack(CHUNKS, page_tokens=4, device=CPU).pages_SP.tolist() == [[7, 2], [5, 0]]


def test_padding_tokens_are_kept_in_page_0() -> None:
    batch = pack(CHUNKS, page_tokens=4, device=CPU, tokens_wide=6, pages_wide=3)
    assert batch.slots_T.tolist()[4:] == [0, 0]
    assert batch.pages_SP.shape == (2, 3)
    assert batch.row_start[-1] == 4


def test_padding_chunks_are_empty_and_stand_behind_the_others() -> None:
    batch = pack(CHUNKS, page_tokens=4, device=CPU, chunks_wide=4)
    assert batch.row_start_S1.tolist() == [0, 3, 4, 4, 4]
    assert batch.row_start == (0, 3, 4)
    assert batch.lengths_S.tolist() == [6, 1, 0, 0]
    assert batch.starts_S.tolist() == [3, 0, 0, 0]
    assert batch.pages_SP.tolist() == [[7, 2], [5, 0], [0, 0], [0, 0]]


def test_a_chunk_that_its_pages_cannot_hold_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="1 pages cannot hold 6 tokens"):
        pack([PromptChunk((1, 2), 4, (3,))], page_tokens=4, device=CPU)
