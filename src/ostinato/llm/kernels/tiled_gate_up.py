"""Product of gate and up, and `activation(gate) * up`: one launch, a batch.

As `few_gate_up`, on tensor cores, from tokens that are weighed already. Also, without the
activation, a product alone.

Shapes: M tokens, E hidden, I inner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from ostinato.llm.kernels.activating import activate
from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.gate_rows import gate_rows_plain
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

if TYPE_CHECKING:
    from torch import Tensor


def tiled_gate_up(
    weighed: Weighed,
    matrix: Matrix,
    activation: str | None,
    *,
    plan: TilePlan,
    room: SplitRoom,
    is_early: bool,
) -> Tensor:
    """Return (M, I); see `tiled_gate_up_plain`.

    Args:
        matrix: (2 I, E): the gates' rows, then the ups'.
        activation: One of `activating.KNOWN`; None: there are no gates, and `matrix` is (I, E).

    Capture:
        Safe.
    """
    rows, size = weighed.x_MK.shape
    inner = len(matrix.weight) // (1 if activation is None else 2)
    out_MI = weighed.x_MK.new_empty(rows, inner)
    tokens = tokens_pad(rows, plan)
    tiles = (triton.cdiv(inner, plan.outputs), triton.cdiv(rows, tokens))
    wide = plan.outputs * (1 if activation is None else 2)
    _gate_up[(*tiles, plan.splits)](
        weighed.x_MK,
        weighed.squares_PM,
        matrix.weight,
        matrix.scale_place,
        matrix.bias_place,
        out_MI,
        rows,
        len(weighed.squares_PM),
        room.parts(tiles[0] * tiles[1], wide * tokens, plan, size),
        room.arrived,
        weighed.eps,
        E=size,
        INNER=inner,
        N=plan.outputs,
        M=tokens,
        PARTS_PAD=weighed.parts_pad,
        CHUNK=plan.chunk,
        STAGES=plan.stages,
        SPLITS=plan.splits,
        AHEAD=plan.ahead,
        PATIENT=plan.is_patient,
        NAME=activation or "",
        EARLY=is_early,
        num_warps=plan.warps,
        **matrix.flags,
        **launching(is_early=is_early),
    )
    return out_MI


def tiled_gate_up_plain(weighed: Weighed, matrix: Matrix, activation: str | None) -> Tensor:
    """Do the same in plain torch."""
    both = matrix.product_plain(scaled_plain(weighed))
    return both if activation is None else gate_rows_plain(both, activation)


@triton.jit(do_not_specialize=("rows", "parts"))
def _gate_up(
    x: tl.tensor,
    squares: tl.tensor,
    matrix: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    parted: tl.tensor,
    arrived: tl.tensor,
    eps: tl.tensor,
    E: tl.constexpr,
    INNER: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    PARTS_PAD: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    PATIENT: tl.constexpr,
    NAME: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    if not PATIENT:
        let_next_begin(EARLY)
    at_N = tl.program_id(0) * N + tl.arange(0, N)
    inside_N = tl.minimum(at_N, INNER - 1)
    row_R = inside_N
    if NAME != "":
        row_R = pairs_of(inside_N, INNER, N)
    ahead = load_ahead(matrix, row_R, E, CHUNK, SPLITS, AHEAD)
    token_M = tl.program_id(1) * M + tl.arange(0, M)
    inside_M = tl.minimum(token_M, rows - 1)
    wait_for_previous(EARLY)
    squares_PM = load_squares(squares, inside_M, parts, rows, PARTS_PAD)
    sums_RM = multiply(matrix, row_R, ahead, x, inside_M, E, CHUNK, STAGES, SPLITS, AHEAD)
    if PATIENT:
        let_next_begin(EARLY)
    is_mine = True
    if SPLITS > 1:
        WIDE: tl.constexpr = N if NAME == "" else 2 * N
        sums_RM, is_mine = add_splits(sums_RM, parted, arrived, WIDE, M, SPLITS)
    scale = tl.rsqrt(tl.sum(squares_PM, 0) / E + eps)[None, :]
    if NAME != "":
        gate, up = unpair(sums_RM, N, M)
        gate = gate * scale
        up = up * scale
        if HAS_SCALE:
            gate *= tl.load(scales + inside_N)[:, None]
            up *= tl.load(scales + INNER + inside_N)[:, None]
        if HAS_BIAS:
            gate += tl.load(bias + inside_N).to(tl.float32)[:, None]
            up += tl.load(bias + INNER + inside_N).to(tl.float32)[:, None]
        result = activate(gate, NAME) * up
    else:
        result = sums_RM * scale
        if HAS_SCALE:
            result *= tl.load(scales + inside_N)[:, None]
        if HAS_BIAS:
            result += tl.load(bias + inside_N).to(tl.float32)[:, None]
    to_out = out + inside_M.to(tl.int64)[None, :] * INNER + at_N[:, None]
    is_there = (at_N < INNER)[:, None] & (token_M < rows)[None, :] & is_mine
    tl.store(to_out, result.to(out.dtype.element_ty), mask=is_there)
