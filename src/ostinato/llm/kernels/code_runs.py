"""Codes on the left side of a tensor core: a thread reads sixteen in a row out of shared memory.

What a tensor core wants from one thread lies apart: of sixteen columns two pairs, eight apart. Two
bytes are half of what is read at once, and must be put together after. But a sum over columns does
not ask for their order, only that both sides have the same: so a thread takes sixteen codes that
lie side by side for the eight pairs that it has in 64 columns, and the tokens' columns, which go
into shared memory in pairs anyhow, are taken in that order. On an H200 a code takes three
instructions so, where it took five. Pieces are of 64 columns or a multiple, and all of them full.

Shapes: R rows of the matrix, C columns of a piece.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

LEAST_ROWS = tl.constexpr(64)
"""Fewer are multiplied by instructions that want the codes otherwise."""


@triton.jit
def run_columns(CHUNK: tl.constexpr) -> Any:
    """Return which column of a piece stands at each place; two in a row stay so."""
    at = tl.arange(0, CHUNK)
    step, half, thread, pair = at % 64 // 16, at % 16 // 8, at % 8 // 2, at % 2
    column = at // 64 * 64 + thread * 16 + step * 4 + half * 2 + pair
    return tl.max_contiguous(tl.multiple_of(column, 2), 2)


@triton.jit
def in_runs(piece_RC: tl.tensor) -> Any:
    """Return a piece's columns in that order. No thread gives another anything."""
    R: tl.constexpr = piece_RC.shape[0]
    C: tl.constexpr = piece_RC.shape[1]
    # Of each 64 columns: of which thread, step, half and pair.
    apart = tl.reshape(piece_RC, (R, C // 64, 4, 4, 2, 2))
    return tl.reshape(tl.permute(apart, (0, 1, 3, 4, 2, 5)), (R, C))
