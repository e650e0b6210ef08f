"""A product, added to what is there: one launch, few rows.

The output projection and the down projection of a layer, with their residual sums.

Shapes: M tokens, K inputs, E hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.few_rows import FewPlan, load_row, load_weights, sum_products
from ostinato.llm.kernels.matrix import Matrix

if TYPE_CHECKING:
    from torch import Tensor


def few_product_add(
    x_ME: Tensor,
    h_MK: Tensor,
    matrix: Matrix,
    *,
    plan: FewPlan,
    is_early: bool,
) -> None:
    """Add `h @ matrix.T + bias` to `x`, in place; see `few_product_add_plain`.

    Args:
        x_ME, h_MK: Contiguous rows.
        matrix: (E, K).

    Capture:
        Safe.
    """
    rows, size = h_MK.shape
    hidden = x_ME.shape[1]
    _product_add[(triton.cdiv(hidden, plan.outputs),)](
        x_ME,
        h_MK,
        plan.weights(matrix, h_MK.dtype),
        matrix.scale_place,
        matrix.bias_place,
        M=rows,
        K=size,
        E=hidden,
        N=plan.outputs,
        CHUNK=plan.chunk,
        SPREAD=plan.spread(matrix),
        EARLY=is_early,
        num_warps=plan.warps,
        **matrix.flags,
        **launching(is_early=is_early),
    )


def few_product_add_plain(x_ME: Tensor, h_MK: Tensor, matrix: Matrix) -> None:
    """Do the same in plain torch."""
    x_ME.add_(matrix.product_plain(h_MK))


@triton.jit
def _product_add(
    x: tl.tensor,
    h: tl.tensor,
    matrix: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    M: tl.constexpr,
    K: tl.constexpr,
    E: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
    SPREAD: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    let_next_begin(EARLY)
    at_N = tl.program_id(0) * N + tl.arange(0, N)
    is_there = at_N < E
    row_N = tl.minimum(at_N, E - 1)
    weights = load_weights(matrix, row_N, K, CHUNK)
    if HAS_BIAS:
        bias_N = tl.load(bias + row_N).to(tl.float32)
    if HAS_SCALE:
        scale_N = tl.load(scales + row_N)
    wait_for_previous(EARLY)
    for m in tl.static_range(M):
        to_x = x + m * E + at_N
        result = tl.load(to_x, mask=is_there, other=0.0).to(tl.float32)
        if HAS_BIAS:
            result += bias_N
        h_row = load_row(h + m * K, K, CHUNK, SPREAD)
        product = sum_products(weights, h_row, K, CHUNK, SPREAD)
        if HAS_SCALE:
            product *= scale_N
        result += product
        tl.store(to_x, result.to(x.dtype.element_ty), mask=is_there)
