"""Norm, product of queries, keys and values, turn, and the way into the cache, for a few rows.

A program computes some pairs (i, i + D/2) of heads, so that it can turn them itself. It lets the
next kernel begin after its own wait, for attention reads the cache before its wait.

Shapes: M tokens, E hidden, H query heads, G key and value heads, D head size, C = D / 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch.nn import functional

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.few_rows import FewPlan, load_normed, load_row, load_weights, sum_products
from ostinato.llm.kernels.matrix import Matrix
from ostinato.llm.kernels.turn_rows import Place, turn_rows_plain

if TYPE_CHECKING:
    from torch import Tensor


def few_qkv(
    x_ME: Tensor,
    norm: Tensor,
    eps: float,
    matrix: Matrix,
    heads: int,
    place: Place,
    *,
    plan: FewPlan,
    is_early: bool,
) -> Tensor:
    """Return the queries, (M, H, D), and write keys and values; see `few_qkv_plain`.

    Args:
        x_ME: Contiguous rows, not normed yet.
        matrix: ((H + 2 G) D, E).

    Capture:
        Safe.
    """
    rows, size = x_ME.shape
    _, _, kv_heads, head_dim = place.keys.shape
    q_MHD = x_ME.new_empty(rows, heads, head_dim)
    pairs = (heads + 2 * kv_heads) * head_dim // 2
    _qkv[(triton.cdiv(pairs, plan.outputs),)](
        x_ME,
        norm,
        plan.weights(matrix, x_ME.dtype),
        matrix.scale_place,
        matrix.bias_place,
        place.cos_NC,
        place.sin_NC,
        place.slots_N,
        q_MHD,
        place.keys,
        place.values,
        eps,
        M=rows,
        E=size,
        H=heads,
        G=kv_heads,
        D=head_dim,
        N=plan.outputs,
        CHUNK=plan.chunk,
        SPREAD=plan.spread(matrix),
        EARLY=is_early,
        num_warps=plan.warps,
        **matrix.flags,
        **launching(is_early=is_early),
    )
    return q_MHD


def few_qkv_plain(
    x_ME: Tensor,
    norm: Tensor,
    eps: float,
    matrix: Matrix,
    heads: int,
    place: Place,
) -> Tensor:
    """Do the same in plain torch."""
    normed = functional.rms_norm(x_ME, norm.shape, norm, eps)
    return turn_rows_plain(matrix.product_plain(normed), heads, place, None)


@triton.jit
def _qkv(
    x: tl.tensor,
    norm: tl.tensor,
    matrix: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    slots: tl.tensor,
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    eps: tl.tensor,
    M: tl.constexpr,
    E: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
    SPREAD: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    C: tl.constexpr = D // 2
    pair_N = tl.program_id(0) * N + tl.arange(0, N)
    is_there = pair_N < (H + 2 * G) * C
    pair_N = tl.minimum(pair_N, (H + 2 * G) * C - 1)
    head = pair_N // C
    c = pair_N % C
    low_weights = load_weights(matrix, head * D + c, E, CHUNK)
    high_weights = load_weights(matrix, head * D + C + c, E, CHUNK)
    norm_weights = load_row(norm, E, CHUNK, SPREAD)
    is_q = is_there & (head < H)
    is_k = is_there & (head >= H) & (head < H + G)
    is_v = is_there & (head >= H + G)
    turns = head < H + G
    low_bias = 0.0
    high_bias = 0.0
    if HAS_BIAS:
        low_bias = tl.load(bias + head * D + c).to(tl.float32)
        high_bias = tl.load(bias + head * D + C + c).to(tl.float32)
    low_scale = 1.0
    high_scale = 1.0
    if HAS_SCALE:
        low_scale = tl.load(scales + head * D + c)
        high_scale = tl.load(scales + head * D + C + c)
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    for m in tl.static_range(M):
        slot = tl.load(slots + m)
        cos_N = tl.load(cos + m * C + c, mask=turns, other=1.0)
        sin_N = tl.load(sin + m * C + c, mask=turns, other=0.0)
        x_row, scale = load_normed(x + m * E, norm_weights, eps, E, CHUNK, SPREAD)
        low = sum_products(low_weights, x_row, E, CHUNK, SPREAD) * (scale * low_scale) + low_bias
        high = (
            sum_products(high_weights, x_row, E, CHUNK, SPREAD) * (scale * high_scale) + high_bias
        )
        new_low = (low * cos_N - high * sin_N).to(q.dtype.element_ty)
        new_high = (high * cos_N + low * sin_N).to(q.dtype.element_ty)
        to_q = q + m * (H * D) + head * D + c
        tl.store(to_q, new_low, mask=is_q)
        tl.store(to_q + C, new_high, mask=is_q)
        to_k = keys + (slot * G + head - H) * D + c
        tl.store(to_k, new_low, mask=is_k)
        tl.store(to_k + C, new_high, mask=is_k)
        to_v = values + (slot * G + head - H - G) * D + c
        tl.store(to_v, new_low, mask=is_v)
        tl.store(to_v + C, new_high, mask=is_v)
