"""Product of queries, keys and values, turn, and the way into the cache: one launch, a batch.

As `few_qkv`, on tensor cores, from tokens that are weighed already.

Shapes: M tokens, E hidden, H query heads, G key and value heads, D head size, C = D / 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.matrix import Matrix
from ostinato.llm.kernels.tiled_rows import (
    SplitRoom,
    TilePlan,
    Weighed,
    add_splits,
    load_ahead,
    load_squares,
    multiply,
    pairs_of,
    scaled_plain,
    tokens_pad,
    unpair,
)
from ostinato.llm.kernels.turn_rows import Place, turn_rows_plain

if TYPE_CHECKING:
    from torch import Tensor


def tiled_qkv(
    weighed: Weighed,
    matrix: Matrix,
    heads: int,
    place: Place,
    *,
    plan: TilePlan,
    room: SplitRoom,
    is_early: bool,
) -> Tensor:
    """Return the queries, (M, H, D), and write keys and values; see `tiled_qkv_plain`.

    Args:
        matrix: ((H + 2 G) D, E).

    Capture:
        Safe.
    """
    rows, size = weighed.x_MK.shape
    _, _, kv_heads, head_dim = place.keys.shape
    q_MHD = weighed.x_MK.new_empty(rows, heads, head_dim)
    pairs = (heads + 2 * kv_heads) * head_dim // 2
    tokens = tokens_pad(rows, plan)
    tiles = (triton.cdiv(pairs, plan.outputs), triton.cdiv(rows, tokens))
    _qkv[(*tiles, plan.splits)](
        weighed.x_MK,
        weighed.squares_PM,
        matrix.weight,
        matrix.scale_place,
        matrix.bias_place,
        place.cos_NC,
        place.sin_NC,
        place.slots_N,
        q_MHD,
        place.keys,
        place.values,
        rows,
        len(weighed.squares_PM),
        room.parts(tiles[0] * tiles[1], 2 * plan.outputs * tokens, plan, size),
        room.arrived,
        weighed.eps,
        E=size,
        H=heads,
        G=kv_heads,
        D=head_dim,
        N=plan.outputs,
        M=tokens,
        PARTS_PAD=weighed.parts_pad,
        CHUNK=plan.chunk,
        STAGES=plan.stages,
        SPLITS=plan.splits,
        AHEAD=plan.ahead,
        PATIENT=plan.is_patient,
        EARLY=is_early,
        num_warps=plan.warps,
        **matrix.flags,
        **launching(is_early=is_early),
    )
    return q_MHD


def tiled_qkv_plain(weighed: Weighed, matrix: Matrix, heads: int, place: Place) -> Tensor:
    """Do the same in plain torch."""
    qkv = matrix.product_plain(scaled_plain(weighed))
    return turn_rows_plain(qkv, heads, place, None)


@triton.jit(do_not_specialize=("rows", "parts"))
def _qkv(
    x: tl.tensor,
    squares: tl.tensor,
    matrix: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    slots: tl.tensor,
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    parted: tl.tensor,
    arrived: tl.tensor,
    eps: tl.tensor,
    E: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    PARTS_PAD: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    PATIENT: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    C: tl.constexpr = D // 2
    PAIRS: tl.constexpr = (H + 2 * G) * C
    pair_N = tl.program_id(0) * N + tl.arange(0, N)
    inside_N = tl.minimum(pair_N, PAIRS - 1)
    row_R = pairs_of(inside_N // C * D + inside_N % C, C, N)
    ahead = load_ahead(matrix, row_R, E, CHUNK, SPLITS, AHEAD)
    token_M = tl.program_id(1) * M + tl.arange(0, M)
    inside_M = tl.minimum(token_M, rows - 1)
    wait_for_previous(EARLY)
    if not PATIENT:
        let_next_begin(EARLY)
    squares_PM = load_squares(squares, inside_M, parts, rows, PARTS_PAD)
    slot = tl.load(slots + inside_M)[None, :]
    head = (inside_N // C)[:, None]
    c = (inside_N % C)[:, None]
    turns = (head < H + G) & (token_M >= 0)[None, :]
    m = inside_M.to(tl.int64)[None, :]
    cos_NM = tl.load(cos + m * C + c, mask=turns, other=1.0)
    sin_NM = tl.load(sin + m * C + c, mask=turns, other=0.0)
    sums_RM = multiply(matrix, row_R, ahead, x, inside_M, E, CHUNK, STAGES, SPLITS, AHEAD)
    if PATIENT:
        let_next_begin(EARLY)
    is_mine = True
    if SPLITS > 1:
        sums_RM, is_mine = add_splits(sums_RM, parted, arrived, 2 * N, M, SPLITS)
    low, high = unpair(sums_RM, N, M)
    scale = tl.rsqrt(tl.sum(squares_PM, 0) / E + eps)[None, :]
    low = low * scale
    high = high * scale
    if HAS_SCALE:
        low *= tl.load(scales + head * D + c)
        high *= tl.load(scales + head * D + C + c)
    if HAS_BIAS:
        low += tl.load(bias + head * D + c).to(tl.float32)
        high += tl.load(bias + head * D + C + c).to(tl.float32)
    is_there = (pair_N < PAIRS)[:, None] & (token_M < rows)[None, :] & is_mine
    new_low = (low * cos_NM - high * sin_NM).to(q.dtype.element_ty)
    new_high = (high * cos_NM + low * sin_NM).to(q.dtype.element_ty)
    is_q = is_there & (head < H)
    to_q = q + m * (H * D) + head * D + c
    tl.store(to_q, new_low, mask=is_q)
    tl.store(to_q + C, new_high, mask=is_q)
    is_k = is_there & (head >= H) & (head < H + G)
    to_k = keys + (slot * G + head - H) * D + c
    tl.store(to_k, new_low, mask=is_k)
    tl.store(to_k + C, new_high, mask=is_k)
    is_v = is_there & (head >= H + G)
    to_v = values + (slot * G + head - H - G) * D + c
    tl.store(to_v, new_low, mask=is_v)
    tl.store(to_v + C, new_high, mask=is_v)
