"""Prompt chunks packed one behind the other, as a prefill reads them.

The host knows tokens, positions and pages as plain numbers; `pack` turns them into the tensors of
one prefill, with one copy to the device each. Nothing is padded between chunks, so a prompt of 3
tokens beside one of 700 costs 703.

Shapes: T packed tokens (padding behind the last chunk included), S chunks, P pages per chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class PromptChunk(NamedTuple):
    """A stretch of one prompt.

    Attributes:
        token_ids: Its tokens.
        start: Position of the first of them; all before it is cached already.
        pages: The sequence's pages, from position 0 on; they must hold the chunk's last token.
    """

    token_ids: Sequence[int]
    start: int
    pages: Sequence[int]


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """Packed chunks on the device.

    Attributes:
        tokens_T, positions_T, slots_T: int64. Padding tokens write to page 0, which nobody owns.
        row_start: Where each chunk begins in T, and where the last one ends: one number more than
            there are chunks. Padding chunks are not in it.
        row_start_S1: int32, the same on the device, S + 1 numbers; padding chunks are empty.
        pages_SP: int32; entries past a chunk's length are ignored.
        lengths_S: int32 tokens cached once this chunk is; 0 for padding chunks.
        starts_S: int32 position of each chunk's first token.
    """

    tokens_T: Tensor
    positions_T: Tensor
    slots_T: Tensor
    row_start: tuple[int, ...]
    row_start_S1: Tensor
    pages_SP: Tensor
    lengths_S: Tensor
    starts_S: Tensor


def pack(
    chunks: Sequence[PromptChunk],
    *,
    page_tokens: int,
    device: torch.device,
    tokens_wide: int | None = None,
    pages_wide: int | None = None,
    chunks_wide: int | None = None,
) -> PrefillBatch:
    """Pack `chunks` in their order.

    Args:
        tokens_wide: Pad to so many tokens; None: no padding.
        pages_wide: Width of the page table; None: as wide as the longest chunk needs.
        chunks_wide: Pad to so many chunks; None: no padding.
    """
    counts = [len(chunk.token_ids) for chunk in chunks]
    lengths = [chunk.start + count for chunk, count in zip(chunks, counts, strict=True)]
    pages = [
        list(chunk.pages[: -(-length // page_tokens)])
        for chunk, length in zip(chunks, lengths, strict=True)
    ]
    for row, length in zip(pages, lengths, strict=True):
        assert len(row) * page_tokens >= length, f"{len(row)} pages cannot hold {length} tokens"
    positions = [range(chunk.start, length) for chunk, length in zip(chunks, lengths, strict=True)]
    slots = [
        row[position // page_tokens] * page_tokens + position % page_tokens
        for row, span in zip(pages, positions, strict=True)
        for position in span
    ]
    padding = [0] * (max(tokens_wide or 0, sum(counts)) - sum(counts))
    wide = max(pages_wide or 1, *map(len, pages))
    empty = max(chunks_wide or 0, len(chunks)) - len(chunks)
    row_start = (0, *accumulate(counts))
    table = [row + [0] * (wide - len(row)) for row in pages] + [[0] * wide] * empty

    def on_device(values: object, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

    return PrefillBatch(
        tokens_T=on_device([t for c in chunks for t in c.token_ids] + padding, torch.int64),
        positions_T=on_device([p for span in positions for p in span] + padding, torch.int64),
        slots_T=on_device(slots + padding, torch.int64),
        row_start=row_start,
        row_start_S1=on_device([*row_start, *row_start[-1:] * empty], torch.int32),
        pages_SP=on_device(table, torch.int32),
        lengths_S=on_device(lengths + [0] * empty, torch.int32),
        starts_S=on_device([chunk.start for chunk in chunks] + [0] * empty, torch.int32),
    )
