"""How a decode step begins: the embeddings of the tokens, and the angles of their positions.

Shapes: N rows, E hidden, C = D / 2 pairs of a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous

if TYPE_CHECKING:
    from torch import Tensor


def begin_rows(
    tokens_N: Tensor,
    positions_N: Tensor,
    table_VE: Tensor,
    frequencies_C: Tensor,
    amplitude: float,
    *,
    is_early: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens' rows of the table, and cosine and sine (N, C) of their angles.

    See `begin_rows_plain`.

    Args:
        tokens_N, positions_N: int32 or int64, with any stride.

    Capture:
        Safe.
    """
    rows, size = len(tokens_N), table_VE.shape[1]
    x_NE = table_VE.new_empty(rows, size)
    cos_NC = frequencies_C.new_empty(rows, len(frequencies_C))
    sin_NC = torch.empty_like(cos_NC)
    _begin[(rows,)](
        tokens_N,
        positions_N,
        table_VE,
        frequencies_C,
        x_NE,
        cos_NC,
        sin_NC,
        amplitude,
        tokens_N.stride(0),
        positions_N.stride(0),
        E=size,
        C=len(frequencies_C),
        E_PAD=triton.next_power_of_2(size),
        C_PAD=triton.next_power_of_2(len(frequencies_C)),
        EARLY=is_early,
        num_warps=4,
        **launching(is_early=is_early),
    )
    return x_NE, cos_NC, sin_NC


def begin_rows_plain(
    tokens_N: Tensor,
    positions_N: Tensor,
    table_VE: Tensor,
    frequencies_C: Tensor,
    amplitude: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do the same in plain torch."""
    angle_NC = positions_N[:, None].to(torch.float32) * frequencies_C
    x_NE = torch.nn.functional.embedding(tokens_N, table_VE)
    return x_NE, angle_NC.cos() * amplitude, angle_NC.sin() * amplitude


@triton.jit(do_not_specialize=("tokens_stride", "positions_stride"))
def _begin(
    tokens: tl.tensor,
    positions: tl.tensor,
    table: tl.tensor,
    frequencies: tl.tensor,
    x: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    amplitude: tl.tensor,
    tokens_stride: tl.tensor,
    positions_stride: tl.tensor,
    E: tl.constexpr,
    C: tl.constexpr,
    E_PAD: tl.constexpr,
    C_PAD: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, E_PAD)
    c = tl.arange(0, C_PAD)
    frequency_C = tl.load(frequencies + c, mask=c < C, other=0.0)
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    token = tl.load(tokens + row * tokens_stride).to(tl.int64)
    x_E = tl.load(table + token * E + e, mask=e < E, other=0.0)
    tl.store(x + row * E + e, x_E, mask=e < E)
    position = tl.load(positions + row * positions_stride)
    angle_C = position.to(tl.float32) * frequency_C
    tl.store(cos + row * C + c, tl.cos(angle_C) * amplitude, mask=c < C)
    tl.store(sin + row * C + c, tl.sin(angle_C) * amplitude, mask=c < C)
