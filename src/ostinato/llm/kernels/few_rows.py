"""What the products of a few rows share: weights into registers before the wait, then sums.

A product with one to four rows is a stream of weights, so its shape follows the memory: a program
takes a few whole rows of the matrix, every thread asks for some sixteen pieces of 16 bytes of them
at once, before the kernel ahead has ended, and no program takes a second portion. Multiplying is
done by the ordinary units, in float32; tensor cores would have little to do.

Shapes: N rows of the matrix, K columns, M tokens. Chunks cut K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class FewPlan:
    """How a product of a few rows is cut and compiled.

    Attributes:
        outputs: Rows of the matrix a program takes; pairs of rows, where rows go in pairs.
        chunk: Columns taken at a time, a power of two.
        is_spread: Whether each thread loads the tokens' numbers that stand against its own weights,
            instead of exchanging them: good for short rows.
    """

    outputs: int
    chunk: int
    warps: int
    is_spread: bool = False


@triton.jit
def load_weights(matrix: tl.tensor, row_N: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr) -> Any:
    """Return rows of the matrix, (N, CHUNK) each chunk. They are read once, and said so."""
    chunks = ()
    for c in tl.static_range((K + CHUNK - 1) // CHUNK):
        k = c * CHUNK + tl.arange(0, CHUNK)
        at = matrix + row_N[:, None].to(tl.int64) * K + k[None, :]
        if (c + 1) * CHUNK <= K:
            piece = tl.load(at, eviction_policy="evict_first")
        else:
            piece = tl.load(at, mask=(k < K)[None, :], other=0.0, eviction_policy="evict_first")
        chunks = chunks + (piece,)  # type: ignore[assignment]  # noqa: RUF005
    return chunks


@triton.jit
def load_row(row: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr, SPREAD: tl.constexpr) -> Any:
    """Return K numbers in chunks, (SPREAD, CHUNK) each: SPREAD times the same."""
    again = tl.arange(0, SPREAD)[:, None] * 0
    chunks = ()
    for c in tl.static_range((K + CHUNK - 1) // CHUNK):
        k = c * CHUNK + tl.arange(0, CHUNK)
        at = row + again + k[None, :]
        if (c + 1) * CHUNK <= K:
            piece = tl.load(at)
        else:
            piece = tl.load(at, mask=(again + k[None, :]) < K, other=0.0)
        chunks = chunks + (piece,)  # type: ignore[assignment]  # noqa: RUF005
    return chunks


@triton.jit
def load_normed(
    row: tl.tensor,
    weights: tl.tensor,
    eps: tl.tensor,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    SPREAD: tl.constexpr,
) -> Any:
    """Return a token's weighed numbers, float32, and what they are yet to be multiplied with."""
    pieces = load_row(row, K, CHUNK, SPREAD)
    square = tl.zeros((SPREAD, CHUNK), tl.float32)
    chunks = ()
    for c in tl.static_range((K + CHUNK - 1) // CHUNK):
        x = pieces[c].to(tl.float32)
        square += x * x
        chunks = chunks + (x * weights[c].to(tl.float32),)  # type: ignore[assignment]  # noqa: RUF005
    return chunks, tl.rsqrt(tl.sum(square, 1) / K + eps)


@triton.jit
def sum_products(weights: tl.tensor, x: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr) -> Any:
    """Return the N sums over K."""
    sums = weights[0].to(tl.float32) * x[0].to(tl.float32)
    for c in tl.static_range(1, (K + CHUNK - 1) // CHUNK):
        sums += weights[c].to(tl.float32) * x[c].to(tl.float32)
    return tl.sum(sums, 1)
