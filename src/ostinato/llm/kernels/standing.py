"""Where each row's next key and value go, and how long the row is then: the start of a decode step.

Shapes: B rows, P pages per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.resident_state import ResidentState

_BLOCK = 32


def stand(state: ResidentState, page_tokens: int) -> tuple[Tensor, Tensor]:
    """Return each row's length with its next token, int32, and that token's slot, int64.

    Rows that rest have length 0 and slot 0.

    Capture:
        Safe.
    """
    rows = len(state.place_BF)
    device = state.place_BF.device
    lengths_B = torch.empty(rows, dtype=torch.int32, device=device)
    slots_B = torch.empty(rows, dtype=torch.int64, device=device)
    _stand[(-(-rows // _BLOCK),)](
        state.place_BF,
        state.output_BF,
        state.pages_BP,
        lengths_B,
        slots_B,
        rows,
        state.pages_BP.stride(0),
        PLACE=state.place_BF.stride(0),
        OUT=state.output_BF.stride(0),
        PAGE=page_tokens,
        BLOCK=_BLOCK,
        num_warps=1,
    )
    return lengths_B, slots_B


@triton.jit(do_not_specialize=("rows", "pages_stride"))
def _stand(
    place: tl.tensor,
    output: tl.tensor,
    pages: tl.tensor,
    lengths: tl.tensor,
    slots: tl.tensor,
    rows: tl.tensor,
    pages_stride: tl.tensor,
    PLACE: tl.constexpr,
    OUT: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row_B = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_row_B = row_B < rows
    position_B = tl.load(place + row_B * PLACE + 1, mask=is_row_B, other=0)
    ending_B = tl.load(output + row_B * OUT + 1, mask=is_row_B, other=1)
    runs_B = is_row_B & (ending_B == 0)
    tl.store(lengths + row_B, tl.where(runs_B, position_B + 1, 0).to(tl.int32), mask=is_row_B)
    at_B = pages + row_B * pages_stride + position_B // PAGE
    page_B = tl.load(at_B, mask=runs_B, other=0).to(tl.int64)
    slot_B = page_B * PAGE + position_B % PAGE
    tl.store(slots + row_B, tl.where(runs_B, slot_B, 0), mask=is_row_B)
