"""Tokens weighed for a norm, and their sums of squares: what tiled products begin with.

Shapes: M tokens, E hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.tiled_rows import Weighed

if TYPE_CHECKING:
    from torch import Tensor


def weigh_rows(x_ME: Tensor, norm: Tensor, eps: float, *, is_early: bool) -> Weighed:
    """Return what `weigh_plain` does, in one launch.

    Args:
        x_ME: Contiguous rows.

    Capture:
        Safe.
    """
    rows, size = x_ME.shape
    weighed_ME = torch.empty_like(x_ME)
    squares_1M = torch.empty(1, rows, dtype=torch.float32, device=x_ME.device)
    block = triton.next_power_of_2(size)
    _weigh[(rows,)](
        x_ME,
        norm,
        weighed_ME,
        squares_1M,
        E=size,
        BLOCK=block,
        EARLY=is_early,
        num_warps=min(max(block // 256, 1), 16),
        **launching(is_early=is_early),
    )
    return Weighed(weighed_ME, squares_1M, eps)


@triton.jit
def _weigh(
    x: tl.tensor,
    norm: tl.tensor,
    weighed: tl.tensor,
    squares: tl.tensor,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    e = tl.arange(0, BLOCK)
    is_there = e < E
    norm_E = tl.load(norm + e, mask=is_there, other=0.0).to(tl.float32)
    at = row.to(tl.int64) * E + e
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    x_E = tl.load(x + at, mask=is_there, other=0.0).to(tl.float32)
    tl.store(weighed + at, (x_E * norm_E).to(weighed.dtype.element_ty), mask=is_there)
    tl.store(squares + row, tl.sum(x_E * x_E, 0))
