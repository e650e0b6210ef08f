"""`activation(gate) * up` from the two side by side, in one launch.

Shapes: N rows, I inner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from ostinato.llm.kernels.activating import activate
from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024


def gate_rows(gate_up: Tensor, activation: str, *, is_early: bool) -> Tensor:
    """Return (N, I) from (N, 2 I); see `gate_rows_plain`.

    Args:
        gate_up: Contiguous.
        activation: One of `activating.KNOWN`.

    Capture:
        Safe.
    """
    rows, both = gate_up.shape
    out = gate_up.new_empty(rows, both // 2)
    _gate[(rows, triton.cdiv(both // 2, _BLOCK))](
        gate_up,
        out,
        INNER=both // 2,
        BLOCK=_BLOCK,
        NAME=activation,
        EARLY=is_early,
        num_warps=4,
        **launching(is_early=is_early),
    )
    return out


def gate_rows_plain(gate_up: Tensor, activation: str) -> Tensor:
    """Do the same in plain torch."""
    # Here: the models' package reads checkpoints, which kernels need not know of.
    from ostinato.llm.models.layers import ACTIVATIONS

    gate, up = gate_up.chunk(2, dim=-1)
    return ACTIVATIONS[activation](gate) * up


@triton.jit
def _gate(
    gate_up: tl.tensor,
    out: tl.tensor,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    NAME: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_there = i < INNER
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    source = gate_up + row * (2 * INNER) + i
    gate_I = tl.load(source, mask=is_there, other=0.0).to(tl.float32)
    up_I = tl.load(source + INNER, mask=is_there, other=0.0).to(tl.float32)
    result = (activate(gate_I, NAME) * up_I).to(out.dtype.element_ty)
    tl.store(out + row * INNER + i, result, mask=is_there)
