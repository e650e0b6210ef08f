"""One program's share of attention over paged keys and values; see `paged_decode`.

Shapes: B rows, G key heads, R query heads of each, D head size, P pages per row; U parts of a row
put together at a time. `_PAD` is the next power of two.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ostinato.llm.kernels.attending import load_rows, slots_of, take_in
from ostinato.llm.kernels.early import let_next_begin, wait_for_previous


@triton.jit
def _extent(
    length: tl.tensor,
    window: tl.tensor,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PIECES: tl.constexpr,
    LEAST: tl.constexpr,
) -> Any:
    """Return a row's first key, how many keys a unit of work has, and how many units there are."""
    length = tl.maximum(length, 0)
    first = length * 0
    if HAS_WINDOW:
        first = tl.maximum(length - window, 0) // PAGE * PAGE
    if PIECES == 0:
        span = first * 0 + BLOCK
    else:
        span = tl.cdiv(tl.cdiv(length - first, PIECES), BLOCK) * BLOCK
        span = tl.maximum(span, tl.cdiv(LEAST, BLOCK) * BLOCK)
    return first, span, tl.cdiv(length - first, span)


@triton.jit
def attend_stretches(
    program: tl.tensor,
    programs: tl.tensor,
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    pages: tl.tensor,
    lengths: tl.tensor,
    owners: tl.tensor,
    out: tl.tensor,
    part_output: tl.tensor,
    part_top: tl.tensor,
    part_total: tl.tensor,
    arrived: tl.tensor,
    rows: tl.tensor,
    pages_stride: tl.tensor,
    q_row_stride: tl.tensor,
    q_head_stride: tl.tensor,
    scale: tl.tensor,
    window: tl.tensor,
    G: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS_PAD: tl.constexpr,
    R_PAD: tl.constexpr,
    M: tl.constexpr,
    D_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_OWNER: tl.constexpr,
    PIECES: tl.constexpr,
    LEAST: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Do one of several programs' share of the work; the lengths are read before the wait."""
    row_B = tl.arange(0, ROWS_PAD)
    length_B = tl.load(lengths + row_B, mask=row_B < rows, other=0).to(tl.int32)
    _, _, units_B = _extent(length_B, window, PAGE, BLOCK, HAS_WINDOW, PIECES, LEAST)
    end_B = tl.cumsum(units_B * G, 0)
    share = tl.cdiv(tl.sum(units_B, 0) * G, programs)
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    at = program * share
    stop = tl.minimum(at + share, tl.sum(units_B, 0) * G)
    while at < stop:
        row = tl.sum((end_B <= at).to(tl.int32), 0)
        row_end = tl.sum(tl.where(row_B == row, end_B, 0), 0)
        length = tl.sum(tl.where(row_B == row, length_B, 0), 0)
        first, span, units = _extent(length, window, PAGE, BLOCK, HAS_WINDOW, PIECES, LEAST)
        head = G - 1 - (row_end - 1 - at) // units
        # The units of this row and head are `begin` to `end`, of which these are mine.
        begin = row_end - (G - head) * units
        end = begin + units
        mine = tl.minimum(stop, end) if PIECES == 0 else at + 1

        m = tl.arange(0, M)
        q_MD = load_rows(
            q + row.to(tl.int64) * q_row_stride, (head * R + m) * q_head_stride, m < R, D, D_PAD
        )
        owner = row
        if HAS_OWNER:
            owner = tl.load(owners + row)
        table = pages + owner.to(tl.int64) * pages_stride
        top_M = tl.full((M,), float("-inf"), tl.float32)
        total_M = tl.zeros((M,), tl.float32)
        out_MD = tl.zeros((M, D_PAD), tl.float32)
        until = tl.minimum(first + (mine - begin) * span, length)
        for key in range(first + (at - begin) * span, until, BLOCK):
            key_N = key + tl.arange(0, BLOCK)
            is_visible_N = key_N < until
            if HAS_WINDOW:
                is_visible_N = is_visible_N & (key_N >= length - window)
            offset_N = (slots_of(table, key_N, is_visible_N, PAGE) * G + head) * D
            k_ND = load_rows(keys, offset_N, is_visible_N, D, D_PAD)
            v_ND = load_rows(values, offset_N, is_visible_N, D, D_PAD)
            top_M, total_M, out_MD = take_in(
                q_MD, k_ND, v_ND, is_visible_N[None, :], scale, top_M, total_M, out_MD, True
            )

        # Parts of this row and head: in which places they stand, and who counts them.
        if PIECES == 0:
            place = 2 * program + (begin >= program * share).to(tl.int32)
            opener = begin // share
            parts = (end - 1) // share - opener + 1
            counter = opener
        else:
            counter = row * G + head
            place = counter * PIECES + at - begin
            opener = counter
            parts = units
        hand_in(
            out + row.to(tl.int64) * (G * R * D) + head * R * D,
            top_M,
            total_M,
            out_MD,
            part_output,
            part_top,
            part_total,
            arrived,
            place,
            counter,
            opener,
            parts,
            R,
            D,
            R_PAD,
            M,
            D_PAD,
            PIECES,
        )
        at = mine
    # Last: nobody waits for zeros.
    clear_padding(program, programs, lengths, out, rows, G * R, D, D_PAD)


@triton.jit
def hand_in(
    result: tl.tensor,
    top_M: tl.tensor,
    total_M: tl.tensor,
    out_MD: tl.tensor,
    part_output: tl.tensor,
    part_top: tl.tensor,
    part_total: tl.tensor,
    arrived: tl.tensor,
    place: tl.tensor,
    counter: tl.tensor,
    opener: tl.tensor,
    parts: tl.tensor,
    R: tl.constexpr,
    D: tl.constexpr,
    R_PAD: tl.constexpr,
    M: tl.constexpr,
    D_PAD: tl.constexpr,
    PIECES: tl.constexpr,
) -> None:
    """Write the output of one row and key head, or a part of it; who comes last adds the parts.

    A part stands at `place`, the first of them at `opener`; `counter` tells how many there are.
    """
    m = tl.arange(0, M)
    d = tl.arange(0, D_PAD)
    is_mine_MD = (m < R)[:, None] & (d < D)[None, :]
    if parts == 1:
        tl.store(
            result + m[:, None] * D + d[None, :],
            (out_MD / total_M[:, None]).to(result.dtype.element_ty),
            mask=is_mine_MD,
        )
    else:
        at_M = place * R + m
        tl.store(part_output + at_M[:, None] * D + d[None, :], out_MD, mask=is_mine_MD)
        tl.store(part_top + at_M, top_M, mask=m < R)
        tl.store(part_total + at_M, total_M, mask=m < R)
        tl.debug_barrier()
        before = tl.atomic_add(arrived + counter, 1, sem="acq_rel")
        if before == parts - 1:
            tl.store(arrived + counter, 0)
            put_together(
                result,
                part_output,
                part_top,
                part_total,
                opener,
                parts,
                R,
                D,
                R_PAD,
                D_PAD,
                PIECES,
            )


@triton.jit
def clear_padding(
    program: tl.tensor,
    programs: tl.tensor,
    lengths: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    H: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
) -> None:
    """Write the zeros of rows that hold nothing; the rows are dealt out to the programs."""
    d = tl.arange(0, D_PAD)
    for row in range(program, rows, programs):
        if tl.load(lengths + row) <= 0:
            result = out + row * (H * D)
            zero = tl.zeros((D_PAD,), out.dtype.element_ty)
            for head in range(H):
                tl.store(result + head * D + d, zero, mask=d < D)


@triton.jit
def put_together(
    result: tl.tensor,
    part_output: tl.tensor,
    part_top: tl.tensor,
    part_total: tl.tensor,
    opener: tl.tensor,
    parts: tl.tensor,
    R: tl.constexpr,
    D: tl.constexpr,
    R_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
    PIECES: tl.constexpr,
) -> None:
    """Add the parts of one row and key head, in the order of the keys."""
    U: tl.constexpr = 8
    r = tl.arange(0, R_PAD)
    d = tl.arange(0, D_PAD)
    top_R = tl.full((R_PAD,), float("-inf"), tl.float32)
    total_R = tl.zeros((R_PAD,), tl.float32)
    out_RD = tl.zeros((R_PAD, D_PAD), tl.float32)
    for first in range(0, parts, U):
        part_U = first + tl.arange(0, U)
        if PIECES == 0:
            place_U = 2 * (opener + part_U) + (part_U == 0).to(tl.int32)
        else:
            place_U = opener * PIECES + part_U
        at_UR = place_U[:, None] * R + r[None, :]
        is_there_UR = (part_U < parts)[:, None] & (r < R)[None, :]
        is_there_URD = is_there_UR[:, :, None] & (d < D)[None, None, :]
        # Other programs wrote these: past the nearest cache, which may hold what was there before.
        top_UR = tl.load(
            part_top + at_UR, mask=is_there_UR, other=float("-inf"), cache_modifier=".cg"
        )
        total_UR = tl.load(part_total + at_UR, mask=is_there_UR, other=0.0, cache_modifier=".cg")
        out_URD = tl.load(
            part_output + at_UR[:, :, None] * D + d[None, None, :],
            mask=is_there_URD,
            other=0.0,
            cache_modifier=".cg",
        )
        new_R = tl.maximum(top_R, tl.max(top_UR, 0))
        zero_R = tl.where(new_R == float("-inf"), 0.0, new_R)
        shrink_R = tl.exp2(top_R - zero_R)
        weight_UR = tl.exp2(top_UR - zero_R[None, :])
        total_R = total_R * shrink_R + tl.sum(weight_UR * total_UR, 0)
        out_RD = out_RD * shrink_R[:, None] + tl.sum(weight_UR[:, :, None] * out_URD, 0)
        top_R = new_R
    tl.store(
        result + r[:, None] * D + d[None, :],
        (out_RD / tl.maximum(total_R, 1e-30)[:, None]).to(result.dtype.element_ty),
        mask=(r < R)[:, None] & (d < D)[None, :],
    )
