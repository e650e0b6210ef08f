"""Where a packed prefill's numbers stand on the device: one stretch of memory, filled by one copy.

What stands where follows from the two sizes of a prefill alone, the tokens and the chunks it has
room for. So a recording of that size finds everything at its place, whatever the chunks are.

The table has room for the longest prompt there can be. Where that is far more than the chunks fill,
their part of it goes by a copy of its own: for prompts of 128 tokens to a model of 131072 the rest
would be a hundred times as much.

Shapes: T packed tokens, S chunks, P pages per chunk; padding included.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from struct import pack_into

import numpy as np
import torch
from torch import Tensor

from ostinato.llm.attention.batch import PrefillBatch, PromptChunk

_LITTLE = 64 * 2**10
"""Bytes of a table that are sent with everything else: sooner there than a second copy begins."""


class PrefillMemory:
    """Room for the numbers of one prefill at a time.

    Args:
        tokens: The most tokens, padding included.
        chunks: The most chunks, likewise.
        pages: Pages of each chunk.
    """

    def __init__(
        self, tokens: int, chunks: int, pages: int, page_tokens: int, device: torch.device
    ) -> None:
        self._pages, self._page_tokens = pages, page_tokens
        size = _head(tokens, chunks) + 4 * chunks * pages
        self._bytes = torch.zeros(size, dtype=torch.uint8, device=device)

    def batch(self, tokens: int, chunks: int, row_start: tuple[int, ...] = ()) -> PrefillBatch:
        """Return the views of a prefill of these sizes.

        Behind the pages that a chunk fills, its row of the table holds those of earlier prefills.
        """
        head = self._bytes[: _head(tokens, chunks)]
        long_N, short_N = head[: 24 * tokens].view(torch.int64), head[24 * tokens :]
        tokens_T, positions_T, slots_T = long_N.split(tokens)
        lengths_S, starts_S, row_start_S1 = short_N.view(torch.int32).split(
            (chunks, chunks, chunks + 1)
        )
        table_SP = self._table(tokens, chunks)
        return PrefillBatch(
            tokens_T, positions_T, slots_T, row_start, row_start_S1, table_SP, lengths_S, starts_S
        )

    def _table(self, tokens: int, chunks: int) -> Tensor:
        head = _head(tokens, chunks)
        table = self._bytes[head : head + 4 * chunks * self._pages]
        return table.view(torch.int32).view(chunks, self._pages)

    def send(self, chunks: Sequence[PromptChunk], tokens: int, wide: int) -> tuple[int, ...]:
        """Queue the copy of the chunks, padded to `tokens` tokens and `wide` chunks.

        Returns:
            Where each chunk begins, and where the last one ends.
        """
        head = _head(tokens, wide)
        row_start = (0, *accumulate(len(chunk.token_ids) for chunk in chunks))
        filled = [self._filled(chunk) for chunk in chunks]
        is_little = 4 * len(chunks) * self._pages <= _LITTLE
        columns = self._pages if is_little else max(filled)
        size = head + 4 * len(chunks) * columns
        staged = torch.empty(size, dtype=torch.uint8, pin_memory=self._bytes.is_cuda)
        whole = staged.numpy()
        # Padding: tokens write to page 0, chunks are empty.
        whole.fill(0)
        table = whole[head:].view(np.int32).reshape(len(chunks), columns)
        _write_table(chunks, filled, table)
        self._write(chunks, row_start, whole[:head], table, wide)
        sent = size if is_little else head
        self._bytes[:sent].copy_(staged[:sent], non_blocking=True)
        if not is_little:
            rows_SP = staged[head:].view(torch.int32).view(-1, columns)
            room_SP = self._table(tokens, wide)[: len(chunks), :columns]
            room_SP.copy_(rows_SP, non_blocking=True)
        return row_start

    def _filled(self, chunk: PromptChunk) -> int:
        """Return how many pages a chunk and the tokens before it fill."""
        length = chunk.start + len(chunk.token_ids)
        filled = -(-length // self._page_tokens)
        assert filled <= len(chunk.pages), f"{len(chunk.pages)} pages for {length} tokens"
        return filled

    def _write(
        self,
        chunks: Sequence[PromptChunk],
        row_start: tuple[int, ...],
        head: np.ndarray[tuple[int], np.dtype[np.uint8]],
        table: np.ndarray[tuple[int, int], np.dtype[np.int32]],
        wide: int,
    ) -> None:
        tokens = (len(head) - _head(0, wide)) // 24
        _, positions, slots = head[: 24 * tokens].view(np.int64).reshape(3, tokens)
        lengths, starts, begins = np.split(head[24 * tokens :].view(np.int32), (wide, 2 * wide))
        begins.fill(row_start[-1])
        begins[: len(row_start)] = row_start
        if not chunks:
            return
        used, counts = row_start[-1], np.diff(row_start)
        starts[: len(chunks)] = [chunk.start for chunk in chunks]
        lengths[: len(chunks)] = starts[: len(chunks)] + counts
        memory = head.data
        for begin, chunk in zip(row_start, chunks, strict=False):
            # Of ids in a list numpy asks each what it is.
            pack_into(f"{len(chunk.token_ids)}q", memory, 8 * begin, *chunk.token_ids)
        owner = np.repeat(np.arange(len(chunks)), counts)
        place = np.arange(used) + (starts[: len(chunks)] - row_start[:-1])[owner]
        positions[:used] = place
        page, within = np.divmod(place, self._page_tokens)
        slots[:used] = table[owner, page].astype(np.int64) * self._page_tokens + within


def _head(tokens: int, chunks: int) -> int:
    """Return the bytes of all but the table."""
    return 8 * 3 * tokens + 4 * (3 * chunks + 1)


def _write_table(
    chunks: Sequence[PromptChunk],
    filled: Sequence[int],
    table: np.ndarray[tuple[int, int], np.dtype[np.int32]],
) -> None:
    memory, line = table.data, table.strides[0]
    for row, (chunk, count) in enumerate(zip(chunks, filled, strict=True)):
        pack_into(f"{count}i", memory, row * line, *chunk.pages[:count])
