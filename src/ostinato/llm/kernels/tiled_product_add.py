"""A product, added to what is there, and weighed for the norm that follows: one launch, a batch.

As `few_product_add`, on tensor cores.

Shapes: M tokens, K inputs, E hidden, P programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
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
    multiply,
    tokens_pad,
    weigh_plain,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class NextNorm:
    """The norm between this product and the next."""

    weight: Tensor
    eps: float


def tiled_product_add(
    x_ME: Tensor,
    h_MK: Tensor,
    matrix: Matrix,
    norm: NextNorm,
    *,
    plan: TilePlan,
    room: SplitRoom,
    is_early: bool,
) -> Weighed:
    """Add `h @ matrix.T + bias` to `x`, in place, and weigh it; see `tiled_product_add_plain`.

    Args:
        x_ME, h_MK: Contiguous rows.
        matrix: (E, K).

    Capture:
        Safe.
    """
    rows, size = h_MK.shape
    hidden = x_ME.shape[1]
    parts = triton.cdiv(hidden, plan.outputs)
    weighed_ME = torch.empty_like(x_ME)
    squares_PM = torch.empty(parts, rows, dtype=torch.float32, device=x_ME.device)
    tokens = tokens_pad(rows, plan)
    tiles = (parts, triton.cdiv(rows, tokens))
    _product_add[(*tiles, plan.splits)](
        x_ME,
        h_MK,
        matrix.weight,
        matrix.scale_place,
        matrix.bias_place,
        norm.weight,
        weighed_ME,
        squares_PM,
        room.parts(tiles[0] * tiles[1], plan.outputs * tokens, plan, size),
        room.arrived,
        rows,
        K=size,
        E=hidden,
        N=plan.outputs,
        M=tokens,
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
    return Weighed(weighed_ME, squares_PM, norm.eps)


def tiled_product_add_plain(x_ME: Tensor, h_MK: Tensor, matrix: Matrix, norm: NextNorm) -> Weighed:
    """Do the same in plain torch, in one part."""
    x_ME.add_(matrix.product_plain(h_MK))
    return weigh_plain(x_ME, norm.weight, norm.eps)


@triton.jit(do_not_specialize=("rows",))
def _product_add(
    x: tl.tensor,
    h: tl.tensor,
    matrix: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    norm: tl.tensor,
    weighed: tl.tensor,
    squares: tl.tensor,
    parted: tl.tensor,
    arrived: tl.tensor,
    rows: tl.tensor,
    K: tl.constexpr,
    E: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    PATIENT: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    if not PATIENT:
        let_next_begin(EARLY)
    program = tl.program_id(0)
    at_N = program * N + tl.arange(0, N)
    inside_N = tl.minimum(at_N, E - 1)
    ahead = load_ahead(matrix, inside_N, K, CHUNK, SPLITS, AHEAD)
    norm_N1 = tl.load(norm + inside_N).to(tl.float32)[:, None]
    token_M = tl.program_id(1) * M + tl.arange(0, M)
    inside_M = tl.minimum(token_M, rows - 1)
    at_NM = inside_M.to(tl.int64)[None, :] * E + at_N[:, None]
    is_there = (at_N < E)[:, None] & (token_M < rows)[None, :]
    wait_for_previous(EARLY)
    old_NM = tl.load(x + at_NM, mask=is_there, other=0.0)
    sums_NM = multiply(matrix, inside_N, ahead, h, inside_M, K, CHUNK, STAGES, SPLITS, AHEAD)
    if PATIENT:
        let_next_begin(EARLY)
    is_mine = True
    if SPLITS > 1:
        sums_NM, is_mine = add_splits(sums_NM, parted, arrived, N, M, SPLITS)
    is_there = is_there & is_mine
    if HAS_SCALE:
        sums_NM *= tl.load(scales + inside_N)[:, None]
    if HAS_BIAS:
        sums_NM += tl.load(bias + inside_N).to(tl.float32)[:, None]
    sums_NM += old_NM.to(tl.float32)
    new_NM = sums_NM.to(x.dtype.element_ty)
    tl.store(x + at_NM, new_NM, mask=is_there)
    new_NM = tl.where(is_there, new_NM.to(tl.float32), 0.0)
    tl.store(weighed + at_NM, (new_NM * norm_N1).to(weighed.dtype.element_ty), mask=is_there)
    tl.store(
        squares + program * rows + token_M,
        tl.sum(new_NM * new_NM, 0),
        mask=(token_M < rows) & is_mine,
    )
