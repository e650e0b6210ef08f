"""Attention of packed prompt chunks over paged keys and values, in one launch.

A program takes a tile of queries that share a key head: some tokens of one chunk, with all their
query heads. Which tile it is follows from the chunks' places, read on the device, so a recorded
launch serves every layout of chunks with as many tokens. Keys that all of a tile's tokens see need
no mask, and those are most; the others are few and come last.

Shapes: T packed tokens, S chunks, H query heads, G key heads, R = H / G, D head size, P pages per
chunk; M rows of a tile, N keys of a block. `_PAD` is the next power of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.attending import LOG2_E, count_pad, load_rows, slots_of, take_in

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """How a launch is cut and compiled.

    Attributes:
        tile: Query rows of a program, one per token and query head; at least R.
        block: Keys taken in at a time.
    """

    tile: int
    block: int
    warps: int
    stages: int


def paged_prefill(
    q_THD: Tensor,
    keys: Tensor,
    values: Tensor,
    pages_SP: Tensor,
    row_start_S1: Tensor,
    starts_S: Tensor,
    *,
    scale: float,
    window: int | None,
    plan: PrefillPlan,
) -> Tensor:
    """Return (T, H, D); tokens that belong to no chunk are zero.

    Args:
        keys, values: (pages, page_tokens, G, D), contiguous; the chunks' own are in them.
        pages_SP: int32 or int64; the numbers of one chunk are contiguous.
        row_start_S1: int32, where each chunk begins in T, and where the last one ends.
        starts_S: int32, the position of each chunk's first token.

    Capture:
        Safe. Reads the layout on the device and never waits for it.
    """
    tokens, heads, size = q_THD.shape
    _, page_tokens, kv_heads, _ = keys.shape
    group, chunks = heads // kv_heads, len(starts_S)
    if q_THD.stride(2) != 1:
        q_THD = q_THD.contiguous()
    out_THD = torch.zeros((tokens, heads, size), dtype=q_THD.dtype, device=q_THD.device)
    # Every chunk may end with a tile that is not full.
    tiles = triton.cdiv(tokens, plan.tile // group) + chunks
    _prefill[(tiles, kv_heads)](
        q_THD,
        keys,
        values,
        pages_SP,
        row_start_S1,
        starts_S,
        out_THD,
        chunks,
        pages_SP.stride(0),
        q_THD.stride(0),
        q_THD.stride(1),
        scale * LOG2_E,
        window or 0,
        G=kv_heads,
        R=group,
        D=size,
        PAGE=page_tokens,
        CHUNKS_PAD=count_pad(chunks),
        M=plan.tile,
        D_PAD=triton.next_power_of_2(size),
        BLOCK=plan.block,
        HAS_WINDOW=window is not None,
        num_warps=plan.warps,
        num_stages=plan.stages,
    )
    return out_THD


# Sizes that vary from call to call must not make one kernel each.
@triton.jit(do_not_specialize=("chunks", "pages_stride", "window"))
def _prefill(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    pages: tl.tensor,
    row_start: tl.tensor,
    starts: tl.tensor,
    out: tl.tensor,
    chunks: tl.tensor,
    pages_stride: tl.tensor,
    q_token_stride: tl.tensor,
    q_head_stride: tl.tensor,
    scale: tl.tensor,
    window: tl.tensor,
    G: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    CHUNKS_PAD: tl.constexpr,
    M: tl.constexpr,
    D_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
) -> None:
    TOKENS: tl.constexpr = M // R
    head = tl.program_id(1)
    chunk_S = tl.arange(0, CHUNKS_PAD)
    begin_S = tl.load(row_start + chunk_S, mask=chunk_S < chunks, other=0)
    end_S = tl.load(row_start + chunk_S + 1, mask=chunk_S < chunks, other=0)
    tiles_S = tl.cdiv(end_S - begin_S, TOKENS)
    tile_end_S = tl.cumsum(tiles_S, 0)
    # The last tiles of a long chunk see most: they begin first.
    tile = tl.sum(tiles_S, 0) - 1 - tl.program_id(0)
    if tile >= 0:
        chunk = tl.sum((tile_end_S <= tile).to(tl.int32), 0)
        begin = tl.load(row_start + chunk)
        count = tl.load(row_start + chunk + 1) - begin
        start = tl.load(starts + chunk)
        tiles_before = tl.sum(tl.where(chunk_S < chunk, tiles_S, 0), 0)
        token = (tile - tiles_before) * TOKENS

        m = tl.arange(0, M)
        d = tl.arange(0, D_PAD)
        token_M = token + m // R
        head_M = head * R + m % R
        is_mine_M = (m < TOKENS * R) & (token_M < count)
        place_M = (begin + token_M).to(tl.int64)
        q_MD = load_rows(q, place_M * q_token_stride + head_M * q_head_stride, is_mine_M, D, D_PAD)
        position_M = start + token_M
        table = pages + chunk.to(tl.int64) * pages_stride
        top_M = tl.full((M,), float("-inf"), tl.float32)
        total_M = tl.zeros((M,), tl.float32)
        out_MD = tl.zeros((M, D_PAD), tl.float32)

        until = start + tl.minimum(token + TOKENS, count)
        oldest = start * 0
        if HAS_WINDOW:
            oldest = tl.maximum(start + token + 1 - window, 0)
        low = oldest // BLOCK * BLOCK
        seen_by_all = tl.maximum((start + token + 1) // BLOCK * BLOCK, low)
        for key in range(low, seen_by_all, BLOCK):
            key_N = key + tl.arange(0, BLOCK)
            is_there_N = key_N >= oldest
            is_visible_MN = is_there_N[None, :]
            if HAS_WINDOW:
                is_visible_MN = key_N[None, :] > (position_M - window)[:, None]
            offset_N = (slots_of(table, key_N, is_there_N, PAGE) * G + head) * D
            k_ND = load_rows(keys, offset_N, is_there_N, D, D_PAD)
            v_ND = load_rows(values, offset_N, is_there_N, D, D_PAD)
            top_M, total_M, out_MD = take_in(
                q_MD, k_ND, v_ND, is_visible_MN, scale, top_M, total_M, out_MD, HAS_WINDOW
            )
        for key in range(seen_by_all, until, BLOCK):
            key_N = key + tl.arange(0, BLOCK)
            is_there_N = (key_N >= oldest) & (key_N < until)
            is_visible_MN = key_N[None, :] <= position_M[:, None]
            if HAS_WINDOW:
                is_visible_MN = is_visible_MN & (key_N[None, :] > (position_M - window)[:, None])
            offset_N = (slots_of(table, key_N, is_there_N, PAGE) * G + head) * D
            k_ND = load_rows(keys, offset_N, is_there_N, D, D_PAD)
            v_ND = load_rows(values, offset_N, is_there_N, D, D_PAD)
            top_M, total_M, out_MD = take_in(
                q_MD, k_ND, v_ND, is_visible_MN, scale, top_M, total_M, out_MD, True
            )

        tl.store(
            out + (place_M * (G * R) + head_M)[:, None] * D + d[None, :],
            (out_MD / tl.maximum(total_M, 1e-30)[:, None]).to(out.dtype.element_ty),
            mask=is_mine_M[:, None] & (d < D)[None, :],
        )
