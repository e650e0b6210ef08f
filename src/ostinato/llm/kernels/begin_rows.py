"""How a step begins: embeddings of the tokens, angles of their positions, and where rows stand.

In one launch, whatever of it a step needs: a row's program has the embedding in registers, so it
also weighs it for the first norm; and a decode step's rows are told their slots and lengths here.

Shapes: N rows, E hidden, C = D / 2 pairs of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.standing import Standing, find_place
from ostinato.llm.kernels.tiled_product_add import NextNorm
from ostinato.llm.kernels.tiled_rows import Weighed, weigh_plain

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Begun:
    """What the first layer is given.

    Attributes:
        x_NE: The tokens' rows of the table.
        cos_NC, sin_NC: float32, of their positions' angles.
        weighed: The tokens weighed for a norm, where one was named.
    """

    x_NE: Tensor
    cos_NC: Tensor
    sin_NC: Tensor
    weighed: Weighed | None


def begin_rows(
    tokens_N: Tensor,
    positions_N: Tensor,
    table_VE: Tensor,
    frequencies_C: Tensor,
    amplitude: float,
    *,
    norm: NextNorm | None = None,
    standing: Standing | None = None,
    is_early: bool,
) -> Begun:
    """Look the tokens up, turn their positions into angles; see `begin_rows_plain`.

    Args:
        tokens_N, positions_N: int32 or int64, with any stride.
        norm: The first layer's, where its product takes tokens weighed.
        standing: The rows of a decode step: its lengths and slots are filled.

    Capture:
        Safe.
    """
    rows, size = len(tokens_N), table_VE.shape[1]
    x_NE = table_VE.new_empty(rows, size)
    cos_NC = frequencies_C.new_empty(rows, len(frequencies_C))
    sin_NC = torch.empty_like(cos_NC)
    weighed = None
    if norm is not None:
        squares_1N = torch.empty(1, rows, dtype=torch.float32, device=x_NE.device)
        weighed = Weighed(torch.empty_like(x_NE), squares_1N, norm.eps)
    _begin[(rows,)](
        tokens_N,
        positions_N,
        table_VE,
        frequencies_C,
        x_NE,
        cos_NC,
        sin_NC,
        x_NE if norm is None else norm.weight,
        x_NE if weighed is None else weighed.x_MK,
        x_NE if weighed is None else weighed.squares_PM,
        tokens_N if standing is None else standing.output_BF,
        tokens_N if standing is None else standing.pages_BP,
        tokens_N if standing is None else standing.lengths_B,
        tokens_N if standing is None else standing.slots_B,
        amplitude,
        tokens_N.stride(0),
        positions_N.stride(0),
        0 if standing is None else standing.pages_BP.stride(0),
        OUT=0 if standing is None else standing.output_BF.stride(0),
        PAGE=1 if standing is None else standing.page_tokens,
        E=size,
        C=len(frequencies_C),
        E_PAD=triton.next_power_of_2(size),
        C_PAD=triton.next_power_of_2(len(frequencies_C)),
        WEIGHS=norm is not None,
        STANDS=standing is not None,
        EARLY=is_early,
        num_warps=4,
        **launching(is_early=is_early),
    )
    return Begun(x_NE, cos_NC, sin_NC, weighed)


def begin_rows_plain(
    tokens_N: Tensor,
    positions_N: Tensor,
    table_VE: Tensor,
    frequencies_C: Tensor,
    amplitude: float,
    *,
    norm: NextNorm | None = None,
) -> Begun:
    """Do the same in plain torch, but for rows of a decode step."""
    angle_NC = positions_N[:, None].to(torch.float32) * frequencies_C
    x_NE = torch.nn.functional.embedding(tokens_N, table_VE)
    weighed = None if norm is None else weigh_plain(x_NE, norm.weight, norm.eps)
    return Begun(x_NE, angle_NC.cos() * amplitude, angle_NC.sin() * amplitude, weighed)


@triton.jit(do_not_specialize=("tokens_stride", "positions_stride", "pages_stride"))
def _begin(
    tokens: tl.tensor,
    positions: tl.tensor,
    table: tl.tensor,
    frequencies: tl.tensor,
    x: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    norm: tl.tensor,
    weighed: tl.tensor,
    squares: tl.tensor,
    output: tl.tensor,
    pages: tl.tensor,
    lengths: tl.tensor,
    slots: tl.tensor,
    amplitude: tl.tensor,
    tokens_stride: tl.tensor,
    positions_stride: tl.tensor,
    pages_stride: tl.tensor,
    OUT: tl.constexpr,
    PAGE: tl.constexpr,
    E: tl.constexpr,
    C: tl.constexpr,
    E_PAD: tl.constexpr,
    C_PAD: tl.constexpr,
    WEIGHS: tl.constexpr,
    STANDS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, E_PAD)
    c = tl.arange(0, C_PAD)
    frequency_C = tl.load(frequencies + c, mask=c < C, other=0.0)
    if WEIGHS:
        norm_E = tl.load(norm + e, mask=e < E, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    token = tl.load(tokens + row * tokens_stride).to(tl.int64)
    position = tl.load(positions + row * positions_stride)
    if STANDS:
        runs = tl.load(output + row * OUT + 1) == 0
        length, slot = find_place(position, runs, pages + row * pages_stride, PAGE)
    x_E = tl.load(table + token * E + e, mask=e < E, other=0.0)
    if STANDS:
        tl.store(lengths + row, length)
        tl.store(slots + row, slot)
    angle_C = position.to(tl.float32) * frequency_C
    tl.store(cos + row * C + c, tl.cos(angle_C) * amplitude, mask=c < C)
    tl.store(sin + row * C + c, tl.sin(angle_C) * amplitude, mask=c < C)
    tl.store(x + row * E + e, x_E, mask=e < E)
    if WEIGHS:
        x_E = x_E.to(tl.float32)
        tl.store(weighed + row * E + e, (x_E * norm_E).to(x.dtype.element_ty), mask=e < E)
        tl.store(squares + row, tl.sum(x_E * x_E, 0))
