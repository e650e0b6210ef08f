"""What both attention kernels do with one block of keys: find it, load it, take it in.

Scores are kept in powers of two (the scale includes log2 e), sums in float32. Keys and values that
a query must not see are never loaded: what lies there may be no number, and even times zero that
would stay.

Shapes: M query rows, N keys of a block, D head size, padded to a power of two.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
# Rows (or chunks) that kernels are compiled for; beyond, every power of two.
_FEW, _MANY = 32, 256


def count_pad(count: int) -> int:
    """Return how many rows a kernel is compiled for that serves `count` rows."""
    return _FEW if count <= _FEW else max(triton.next_power_of_2(count), _MANY)


@triton.jit
def slots_of(table: tl.tensor, key_N: tl.tensor, is_there_N: tl.tensor, PAGE: tl.constexpr) -> Any:
    """Return the slots (int64) of some positions of the sequence whose page table begins here."""
    page_N = tl.load(table + key_N // PAGE, mask=is_there_N, other=0).to(tl.int64)
    return page_N * PAGE + key_N % PAGE


@triton.jit
def load_rows(
    base: tl.tensor,
    offset_N: tl.tensor,
    is_there_N: tl.tensor,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
) -> Any:
    """Return rows of D numbers as (N, D_PAD), zero where a row is not there."""
    d = tl.arange(0, D_PAD)
    place_ND = base + offset_N[:, None] + d[None, :]
    if D == D_PAD:
        return tl.load(place_ND, mask=is_there_N[:, None], other=0.0)
    return tl.load(place_ND, mask=is_there_N[:, None] & (d < D)[None, :], other=0.0)


@triton.jit
def take_in(
    q_MD: tl.tensor,
    k_ND: tl.tensor,
    v_ND: tl.tensor,
    is_visible_MN: tl.tensor,
    scale: tl.tensor,
    top_M: tl.tensor,
    total_M: tl.tensor,
    out_MD: tl.tensor,
    HIDES: tl.constexpr,
) -> Any:
    """Add a block of keys to a softmax under way: largest score, sum of weights, output.

    Without HIDES every row sees every key of the block.
    """
    score_MN = tl.dot(q_MD, tl.trans(k_ND), input_precision="ieee") * scale
    if HIDES:
        score_MN = tl.where(is_visible_MN, score_MN, float("-inf"))
    new_M = tl.maximum(top_M, tl.max(score_MN, 1))
    # A row that has seen nothing yet: the difference of two infinities is no number.
    zero_M = tl.where(new_M == float("-inf"), 0.0, new_M)
    shrink_M = tl.exp2(top_M - zero_M)
    weight_MN = tl.exp2(score_MN - zero_M[:, None])
    total_M = total_M * shrink_M + tl.sum(weight_MN, 1)
    out_MD = tl.dot(
        weight_MN.to(v_ND.dtype), v_ND, out_MD * shrink_M[:, None], input_precision="ieee"
    )
    return new_M, total_M, out_MD
