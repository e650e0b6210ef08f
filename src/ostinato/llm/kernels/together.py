"""Attention of the query heads that share a key head, to a piece of a row's keys, by one program.

A program asks for its first blocks of keys and values before the kernel ahead of it has ended: that
one writes nothing else in the cache than the newest token's. Those begin the softmax, behind the
wait. So a row of so few blocks is done one answer of memory after the wait, and nothing waits in
registers.

The wait stands in the loop, in its first turn. There, and only there, the compiler's copies of the
blocks to come, which it moves ahead of the loop, move ahead of the wait as well. What a loop loads
by numbers that it has loaded is asked for half as far ahead: page numbers are loaded before it.

Shapes: G key heads, R query heads of each, D head size, M query rows of a program (R, padded), N
keys of a block, P page numbers of a piece. `_PAD` is the next power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ostinato.llm.kernels.attending import load_rows, take_in
from ostinato.llm.kernels.early import let_next_begin, wait_for_previous
from ostinato.llm.kernels.stretches import hand_in


@triton.jit
def attend_together(
    row: tl.tensor,
    head: tl.tensor,
    piece: tl.tensor,
    length: tl.tensor,
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    table: tl.tensor,
    out: tl.tensor,
    part_output: tl.tensor,
    part_top: tl.tensor,
    part_total: tl.tensor,
    arrived: tl.tensor,
    q_head_stride: tl.tensor,
    scale: tl.tensor,
    window: tl.tensor,
    G: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    PAGES: tl.constexpr,
    R_PAD: tl.constexpr,
    M: tl.constexpr,
    D_PAD: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Attend with the queries of a key head to one piece of its row's keys.

    Args:
        PAGES: At least so many hold a piece, wherever it begins; a power of two.
        AHEAD: Blocks that are asked for before the wait.
    """
    m = tl.arange(0, M)
    d = tl.arange(0, D_PAD)
    p = tl.arange(0, PAGES)
    is_there = length > 0
    newest = length - 1
    oldest = length * 0
    if HAS_WINDOW:
        oldest = tl.maximum(length - window, 0)
    # What is cut into pieces are the keys before the newest, which is the last piece's.
    span = tl.maximum(tl.cdiv(tl.cdiv(newest - oldest, PIECES), BLOCK), 1) * BLOCK
    parts = 1
    if PIECES > 1:
        parts = tl.maximum(tl.cdiv(newest - oldest, span), 1)
    start = oldest + piece * span
    until = tl.minimum(start + span, newest)
    is_last = piece == parts - 1
    first_page = start // PAGE
    page_P = tl.load(table + first_page + p, mask=(first_page + p) * PAGE < until, other=0)
    page = tl.load(table + newest // PAGE, mask=is_there, other=0).to(tl.int64)
    new_D = ((page * PAGE + newest % PAGE) * G + head) * D + d
    is_new_D = (d < D) & is_there & is_last
    q_MD = tl.zeros((M, D_PAD), q.dtype.element_ty)
    top_M = tl.zeros((M,), tl.float32)
    total_M = tl.zeros((M,), tl.float32)
    out_MD = tl.zeros((M, D_PAD), tl.float32)
    # Without a key it still waits.
    for key in tl.range(start, tl.maximum(until, start + 1), BLOCK, num_stages=AHEAD + 1):
        key_N = key + tl.arange(0, BLOCK)
        is_old_N = key_N < until
        # Beyond the last key any number will do, but the table's.
        at_N = tl.where(is_old_N, key_N // PAGE - first_page, 0)
        slot_N = tl.gather(page_P, at_N, 0).to(tl.int64) * PAGE + key_N % PAGE
        k_ND = load_rows(keys, (slot_N * G + head) * D, is_old_N, D, D_PAD)
        v_ND = load_rows(values, (slot_N * G + head) * D, is_old_N, D, D_PAD)
        if key == start:
            wait_for_previous(EARLY)
            let_next_begin(EARLY)
            # Written by the kernel ahead: past the nearest cache, which may hold what was there.
            new_k_D = tl.load(keys + new_D, mask=is_new_D, other=0.0, cache_modifier=".cg")
            new_v_D = tl.load(values + new_D, mask=is_new_D, other=0.0, cache_modifier=".cg")
            # A row that holds nothing asks with zeros, and gathers the zeros of its newest.
            is_mine_M = (m < R) & is_there
            q_MD = load_rows(q, (head * R + m) * q_head_stride, is_mine_M, D, D_PAD)
            score_M = tl.sum(q_MD.to(tl.float32) * new_k_D.to(tl.float32)[None, :], 1) * scale
            top_M = tl.where(is_last, score_M, float("-inf"))
            total_M += tl.where(is_last, 1.0, 0.0)
            out_MD += new_v_D.to(tl.float32)[None, :]
        top_M, total_M, out_MD = take_in(
            q_MD, k_ND, v_ND, is_old_N[None, :], scale, top_M, total_M, out_MD, True
        )
    if piece < parts:
        hand_in(
            out + (row.to(tl.int64) * G + head) * (R * D),
            top_M,
            total_M,
            out_MD,
            part_output,
            part_top,
            part_total,
            arrived,
            (row * G + head) * PIECES + piece,
            row * G + head,
            row * G + head,
            parts,
            R,
            D,
            R_PAD,
            M,
            D_PAD,
            PIECES,
        )
