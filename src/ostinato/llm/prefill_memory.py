"""Where a packed prefill's numbers stand on the device: one stretch of memory, filled by one copy.

What stands where follows from the two sizes of a prefill alone, the tokens and the chunks it has
room for. So a recording of that size finds everything at its place, whatever the chunks are.

Shapes: T packed tokens, S chunks, P pages per chunk; padding included.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import numpy as np
import torch

from ostinato.llm.attention.batch import PrefillBatch, PromptChunk


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
        self._bytes = torch.zeros(self._size(tokens, chunks), dtype=torch.uint8, device=device)

    def _size(self, tokens: int, chunks: int) -> int:
        return 8 * 3 * tokens + 4 * (chunks * (self._pages + 3) + 1)

    def batch(self, tokens: int, chunks: int, row_start: tuple[int, ...] = ()) -> PrefillBatch:
        """Return the views of a prefill of these sizes."""
        used = self._bytes[: self._size(tokens, chunks)]
        long_N, short_N = used[: 24 * tokens].view(torch.int64), used[24 * tokens :]
        tokens_T, positions_T, slots_T = long_N.split(tokens)
        lengths_S, starts_S, row_start_S1, table = short_N.view(torch.int32).split(
            (chunks, chunks, chunks + 1, chunks * self._pages)
        )
        pages_SP = table.view(chunks, self._pages)
        return PrefillBatch(
            tokens_T, positions_T, slots_T, row_start, row_start_S1, pages_SP, lengths_S, starts_S
        )

    def send(self, chunks: Sequence[PromptChunk], tokens: int, wide: int) -> tuple[int, ...]:
        """Queue the copy of the chunks, padded to `tokens` tokens and `wide` chunks.

        Returns:
            Where each chunk begins, and where the last one ends.
        """
        size = self._size(tokens, wide)
        staged = torch.empty(size, dtype=torch.uint8, pin_memory=self._bytes.is_cuda)
        # Padding: tokens write to page 0, chunks are empty.
        whole = staged.numpy()
        whole.fill(0)
        row_start = (0, *accumulate(len(chunk.token_ids) for chunk in chunks))
        self._write(chunks, row_start, whole, tokens, wide)
        self._bytes[:size].copy_(staged, non_blocking=True)
        return row_start

    def _write(
        self,
        chunks: Sequence[PromptChunk],
        row_start: tuple[int, ...],
        whole: np.ndarray[tuple[int], np.dtype[np.uint8]],
        tokens: int,
        wide: int,
    ) -> None:
        ids, positions, slots = whole[: 24 * tokens].view(np.int64).reshape(3, tokens)
        lengths, starts, begins, table = np.split(
            whole[24 * tokens :].view(np.int32), (wide, 2 * wide, 3 * wide + 1)
        )
        table = table.reshape(wide, self._pages)
        begins.fill(row_start[-1])
        begins[: len(row_start)] = row_start
        if not chunks:
            return
        used, counts = row_start[-1], np.diff(row_start)
        starts[: len(chunks)] = [chunk.start for chunk in chunks]
        lengths[: len(chunks)] = starts[: len(chunks)] + counts
        for row, chunk in enumerate(chunks):
            needed = -(-int(lengths[row]) // self._page_tokens)
            assert needed <= len(chunk.pages), f"{len(chunk.pages)} pages for {lengths[row]} tokens"
            table[row, :needed] = chunk.pages[:needed]
        ids[:used] = np.fromiter(chain.from_iterable(c.token_ids for c in chunks), np.int64, used)
        owner = np.repeat(np.arange(len(chunks)), counts)
        place = np.arange(used) + (starts[: len(chunks)] - row_start[:-1])[owner]
        positions[:used] = place
        page, within = np.divmod(place, self._page_tokens)
        slots[:used] = table[owner, page].astype(np.int64) * self._page_tokens + within
