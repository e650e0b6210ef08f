"""What the products of a few rows share: weights into registers before the wait, then sums.

A product with one to four rows is a stream of weights, so its shape follows the memory: a program
takes a few whole rows of the matrix, every thread asks for some sixteen pieces of 16 bytes of them
at once, before the kernel ahead has ended, and no program takes a second portion. Multiplying is
done by the ordinary units, in float32; tensor cores would have little to do.

Codes are half the bytes and as many numbers, so there the arithmetic must be little beside the
reading. A thread loads sixteen codes in a row and sixteen numbers of the token against them, as two
eights, and takes them apart by column: no thread needs another's number, and a product and its
addition are one instruction. More rows in a program mean fewer numbers of the token for each code.

Shapes: N rows of the matrix, K columns, M tokens. Chunks cut K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.columns import eight, two
from ostinato.llm.kernels.decoding_codes import numbers_of
from ostinato.llm.kernels.few_words import sum_words

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.kernels.matrix import Matrix

_COLUMNS = 16
"""Codes of a row that a thread loads at once, taken apart by `eight`, twice."""


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

    def spread(self, matrix: Matrix) -> int:
        """Return how often a program has a token's numbers; 0: once, in columns, for codes."""
        if self.is_spread:
            return self.outputs
        return 0 if matrix.is_codes and self.chunk >= _COLUMNS else 1

    def weights(self, matrix: Matrix, number: torch.dtype) -> Tensor:
        """Return the matrix as a kernel takes it whose tokens are of type `number`.

        That is in words of four, where its codes are int8 and are multiplied as they are.
        """
        weight = matrix.weight
        is_int8 = weight.dtype == torch.int8 and weight.shape[1] % _COLUMNS == 0
        in_words = is_int8 and number.itemsize == 2 and self.spread(matrix) == 0
        return weight.view(torch.int32) if in_words else weight


@triton.jit
def load_weights(matrix: tl.tensor, row_N: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr) -> Any:
    """Return rows of the matrix, (N, CHUNK) each chunk. They are read once, and said so.

    Of a matrix in words of four codes a chunk is (N, CHUNK / 4).
    """
    EACH: tl.constexpr = 4 if matrix.dtype.element_ty == tl.int32 else 1
    chunks = ()
    for c in tl.static_range((K + CHUNK - 1) // CHUNK):
        k = c * (CHUNK // EACH) + tl.arange(0, CHUNK // EACH)
        at = matrix + row_N[:, None].to(tl.int64) * (K // EACH) + k[None, :]
        if (c + 1) * CHUNK <= K:
            piece = tl.load(at, eviction_policy="evict_first")
        else:
            is_there = (k < K // EACH)[None, :]
            piece = tl.load(at, mask=is_there, other=0.0, eviction_policy="evict_first")
        chunks = chunks + (piece,)  # type: ignore[assignment]  # noqa: RUF005
    return chunks


@triton.jit
def load_row(row: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr, SPREAD: tl.constexpr) -> Any:
    """Return K numbers in chunks, (SPREAD, CHUNK) each: SPREAD times the same.

    With SPREAD 0 a chunk is two of (1, CHUNK / 2): eight columns of each sixteen, and the others.
    """
    chunks = ()
    for c in tl.static_range((K + CHUNK - 1) // CHUNK):
        if SPREAD == 0:
            inside = tl.arange(0, CHUNK // 2)[None, :]
            k = c * CHUNK + inside // 8 * 16 + inside % 8
            if (c + 1) * CHUNK <= K:
                chunks = chunks + (tl.load(row + k), tl.load(row + k + 8))  # type: ignore[assignment]  # noqa: RUF005
            else:
                first = tl.load(row + k, mask=k < K, other=0.0)
                second = tl.load(row + k + 8, mask=k + 8 < K, other=0.0)
                chunks = chunks + (first, second)  # type: ignore[assignment]  # noqa: RUF005
        else:
            again = tl.arange(0, SPREAD)[:, None] * 0
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
    square = tl.zeros_like(pieces[0].to(tl.float32))
    chunks = ()
    for c in tl.static_range(len(pieces)):
        x = pieces[c].to(tl.float32)
        square += x * x
        chunks = chunks + (x * weights[c].to(tl.float32),)  # type: ignore[assignment]  # noqa: RUF005
    return chunks, tl.rsqrt(tl.sum(square, 1) / K + eps)


@triton.jit
def sum_products(
    weights: tl.tensor, x: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr, SPREAD: tl.constexpr
) -> Any:
    """Return the N sums over K.

    Args:
        x: As `load_row` returns them.
    """
    if weights[0].dtype == tl.int32:
        return sum_words(weights, x, K, CHUNK)
    elif SPREAD == 0:  # no `if`: what follows a return is compiled too
        return _sum_columns(weights, x, K, CHUNK)
    else:
        sums = numbers_of(weights[0], tl.float32) * x[0].to(tl.float32)
        for c in tl.static_range(1, (K + CHUNK - 1) // CHUNK):
            sums += numbers_of(weights[c], tl.float32) * x[c].to(tl.float32)
        return tl.sum(sums, 1)


@triton.jit
def _sum_columns(weights: tl.tuple, x: tl.tuple, K: tl.constexpr, CHUNK: tl.constexpr) -> Any:
    """Return the N sums, of codes and of a token in columns."""
    sums = tl.zeros((weights[0].shape[0], CHUNK // 16), tl.float32)
    for c in tl.static_range((K + CHUNK - 1) // CHUNK):
        both = eight(numbers_of(weights[c], tl.float32))
        first = eight(x[2 * c].to(tl.float32))
        second = eight(x[2 * c + 1].to(tl.float32))
        for i in tl.static_range(8):
            sums += two(both[i])[0] * first[i]
        for i in tl.static_range(8):
            sums += two(both[i])[1] * second[i]
    return tl.sum(sums, 1)
