"""A sum and a root-mean-square norm of it, one program a row, in one launch.

A row's bits do not depend on the other rows, nor on how many there are.

Shapes: N rows, E hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch.nn import functional

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous

if TYPE_CHECKING:
    from torch import Tensor


def norm_rows(
    x_NE: Tensor, added_NE: Tensor | None, weight: Tensor, eps: float, *, is_early: bool
) -> tuple[Tensor, Tensor]:
    """Return `x + added`, which is written into `x`, and its norm; see `norm_rows_plain`.

    Args:
        x_NE, added_NE: Contiguous rows; None: nothing is to be added.

    Capture:
        Safe.
    """
    rows, size = x_NE.shape
    normed_NE = torch.empty_like(x_NE)
    block = triton.next_power_of_2(size)
    _norm[(rows,)](
        x_NE,
        x_NE if added_NE is None else added_NE,
        weight,
        normed_NE,
        eps,
        E=size,
        BLOCK=block,
        ADDS=added_NE is not None,
        EARLY=is_early,
        num_warps=min(max(block // 256, 1), 16),
        **launching(is_early=is_early),
    )
    return x_NE, normed_NE


def norm_rows_plain(
    x_NE: Tensor, added_NE: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Do the same in plain torch."""
    if added_NE is not None:
        x_NE = x_NE + added_NE
    return x_NE, functional.rms_norm(x_NE, weight.shape, weight, eps)


@triton.jit
def _norm(
    x: tl.tensor,
    added: tl.tensor,
    weight: tl.tensor,
    normed: tl.tensor,
    eps: tl.tensor,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    e = tl.arange(0, BLOCK)
    is_there = e < E
    g_E = tl.load(weight + e, mask=is_there, other=0.0).to(tl.float32)
    at = tl.program_id(0).to(tl.int64) * E + e
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    x_E = tl.load(x + at, mask=is_there, other=0.0)
    if ADDS:
        more_E = tl.load(added + at, mask=is_there, other=0.0)
        x_E = (x_E.to(tl.float32) + more_E.to(tl.float32)).to(x.dtype.element_ty)
        tl.store(x + at, x_E, mask=is_there)
    x_E = x_E.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x_E * x_E, 0) / E + eps)
    tl.store(normed + at, (x_E * scale * g_E).to(normed.dtype.element_ty), mask=is_there)
