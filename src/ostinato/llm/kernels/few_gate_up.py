"""Norm, product of gate and up, and `activation(gate) * up`: one launch, few rows.

Also, without the activation, a norm and a product alone.

Shapes: M tokens, E hidden, I inner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch.nn import functional

from ostinato.llm.kernels.activating import activate
from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.few_rows import FewPlan, load_normed, load_row, load_weights, sum_products
from ostinato.llm.kernels.gate_rows import gate_rows_plain
from ostinato.llm.kernels.matrix import Matrix

if TYPE_CHECKING:
    from torch import Tensor


def few_gate_up(
    x_ME: Tensor,
    norm: Tensor,
    eps: float,
    matrix: Matrix,
    activation: str | None,
    *,
    plan: FewPlan,
    is_early: bool,
) -> Tensor:
    """Return (M, I); see `few_gate_up_plain`.

    Args:
        x_ME: Contiguous rows, not normed yet.
        matrix: (2 I, E): the gates' rows, then the ups'.
        activation: One of `activating.KNOWN`; None: there are no gates, and `matrix` is (I, E).

    Capture:
        Safe.
    """
    rows, size = x_ME.shape
    inner = len(matrix.weight) // (1 if activation is None else 2)
    out_MI = x_ME.new_empty(rows, inner)
    _gate_up[(triton.cdiv(inner, plan.outputs),)](
        x_ME,
        norm,
        plan.weights(matrix, x_ME.dtype),
        matrix.scale_place,
        matrix.bias_place,
        out_MI,
        eps,
        M=rows,
        E=size,
        INNER=inner,
        N=plan.outputs,
        CHUNK=plan.chunk,
        SPREAD=plan.spread(matrix),
        NAME=activation or "",
        EARLY=is_early,
        num_warps=plan.warps,
        **matrix.flags,
        **launching(is_early=is_early),
    )
    return out_MI


def few_gate_up_plain(
    x_ME: Tensor,
    norm: Tensor,
    eps: float,
    matrix: Matrix,
    activation: str | None,
) -> Tensor:
    """Do the same in plain torch."""
    normed = functional.rms_norm(x_ME, norm.shape, norm, eps)
    both = matrix.product_plain(normed)
    return both if activation is None else gate_rows_plain(both, activation)


@triton.jit
def _gate_up(
    x: tl.tensor,
    norm: tl.tensor,
    matrix: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    eps: tl.tensor,
    M: tl.constexpr,
    E: tl.constexpr,
    INNER: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
    SPREAD: tl.constexpr,
    NAME: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    let_next_begin(EARLY)
    at_N = tl.program_id(0) * N + tl.arange(0, N)
    is_there = at_N < INNER
    row_N = tl.minimum(at_N, INNER - 1)
    weights = load_weights(matrix, row_N, E, CHUNK)
    if NAME != "":
        up_weights = load_weights(matrix, row_N + INNER, E, CHUNK)
    norm_weights = load_row(norm, E, CHUNK, SPREAD)
    if HAS_BIAS:
        bias_N = tl.load(bias + row_N).to(tl.float32)
        if NAME != "":
            up_bias_N = tl.load(bias + INNER + row_N).to(tl.float32)
    if HAS_SCALE:
        scale_N = tl.load(scales + row_N)
        if NAME != "":
            up_scale_N = tl.load(scales + INNER + row_N)
    wait_for_previous(EARLY)
    for m in tl.static_range(M):
        x_row, scale = load_normed(x + m * E, norm_weights, eps, E, CHUNK, SPREAD)
        result = sum_products(weights, x_row, E, CHUNK, SPREAD) * scale
        if HAS_SCALE:
            result *= scale_N
        if HAS_BIAS:
            result += bias_N
        if NAME != "":
            up = sum_products(up_weights, x_row, E, CHUNK, SPREAD) * scale
            if HAS_SCALE:
                up *= up_scale_N
            if HAS_BIAS:
                up += up_bias_N
            result = activate(result, NAME) * up
        tl.store(out + m * INNER + at_N, result.to(out.dtype.element_ty), mask=is_there)
