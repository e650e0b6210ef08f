"""Attention of one query head to a piece of a row's keys, by one program.

For very few rows: there are more query heads than key heads, so more programs share the work. What
is asked for before the wait waits in registers.

Shapes: G key heads, R query heads of each, D head size, N keys of a block. `_PAD` is the next power
of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ostinato.llm.kernels.attending import load_rows, slots_of
from ostinato.llm.kernels.early import let_next_begin, wait_for_previous
from ostinato.llm.kernels.stretches import put_together


@triton.jit
def attend_apart(
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
    scale: tl.tensor,
    window: tl.tensor,
    G: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    D_PAD: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Attend with one query head to one piece of its row's keys."""
    kv_head = head // R
    newest = length - 1
    oldest = length * 0
    if HAS_WINDOW:
        oldest = tl.maximum(length - window, 0)
    first = oldest // BLOCK * BLOCK
    span = tl.maximum(tl.cdiv(tl.cdiv(length - first, PIECES), BLOCK), 1) * BLOCK
    parts = tl.cdiv(length - first, span)
    start = first + piece * span
    until = tl.minimum(start + span, length)
    key_N = start + tl.arange(0, BLOCK)
    d = tl.arange(0, D_PAD)
    is_old_N = (key_N >= oldest) & (key_N < tl.minimum(until, newest))
    offset_N = (slots_of(table, key_N, is_old_N, PAGE) * G + kv_head) * D
    k_ND = load_rows(keys, offset_N, is_old_N, D, D_PAD)
    v_ND = load_rows(values, offset_N, is_old_N, D, D_PAD)
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    result = out + (row.to(tl.int64) * (G * R) + head) * D + d
    if length <= 0:
        if piece == 0:
            tl.store(result, tl.zeros((D_PAD,), out.dtype.element_ty), mask=d < D)
    elif piece < parts:
        q_D = tl.load(q + d, mask=d < D, other=0.0).to(tl.float32) * scale
        # Written by the kernel ahead: past the nearest cache, which may hold what was there before.
        at = tl.load(table + newest // PAGE).to(tl.int64) * PAGE + newest % PAGE
        at = (at * G + kv_head) * D + d
        new_k_D = tl.load(keys + at, mask=d < D, other=0.0, cache_modifier=".cg")
        new_v_D = tl.load(values + at, mask=d < D, other=0.0, cache_modifier=".cg")
        top = length * 0.0 + float("-inf")
        total = length * 0.0
        out_D = tl.zeros((D_PAD,), tl.float32)
        for key in range(start, until, BLOCK):
            key_N = key + tl.arange(0, BLOCK)
            if key != start:
                is_old_N = (key_N >= oldest) & (key_N < tl.minimum(until, newest))
                offset_N = (slots_of(table, key_N, is_old_N, PAGE) * G + kv_head) * D
                k_ND = load_rows(keys, offset_N, is_old_N, D, D_PAD)
                v_ND = load_rows(values, offset_N, is_old_N, D, D_PAD)
            is_new_N1 = (key_N == newest)[:, None]
            k_ND = tl.where(is_new_N1, new_k_D[None, :], k_ND)
            v_ND = tl.where(is_new_N1, new_v_D[None, :], v_ND)
            score_N = tl.sum(k_ND.to(tl.float32) * q_D[None, :], 1)
            score_N = tl.where((key_N >= oldest) & (key_N < until), score_N, float("-inf"))
            new_top = tl.maximum(top, tl.max(score_N, 0))
            zero = tl.where(new_top == float("-inf"), 0.0, new_top)
            shrink = tl.exp2(top - zero)
            weight_N = tl.exp2(score_N - zero)
            total = total * shrink + tl.sum(weight_N, 0)
            out_D = out_D * shrink + tl.sum(weight_N[:, None] * v_ND.to(tl.float32), 0)
            top = new_top
        if parts == 1:
            tl.store(result, (out_D / total).to(out.dtype.element_ty), mask=d < D)
        else:
            counter = row * (G * R) + head
            place = counter * PIECES + piece
            tl.store(part_output + place * D + d, out_D, mask=d < D)
            tl.store(part_top + place, top)
            tl.store(part_total + place, total)
            tl.debug_barrier()
            before = tl.atomic_add(arrived + counter, 1, sem="acq_rel")
            if before == parts - 1:
                tl.store(arrived + counter, 0)
                put_together(
                    out + counter.to(tl.int64) * D,
                    part_output,
                    part_top,
                    part_total,
                    counter,
                    parts,
                    1,
                    D,
                    1,
                    D_PAD,
                    PIECES,
                )
