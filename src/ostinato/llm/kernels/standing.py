"""Where each row's next key and value go, and how long the row is then: the start of a decode step.

Shapes: B rows, P pages per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.resident_state import ResidentState

_BLOCK = 32


@dataclass(frozen=True, slots=True)
class Standing:
    """What tells where rows stand, and room for what follows from it.

    Attributes:
        place_BF, output_BF, pages_BP: See `ResidentState`.
        page_tokens: Tokens of a page.
        lengths_B: int32: each row's length with its next token; 0 of rows that rest.
        slots_B: int64: that token's slot; 0 of rows that rest.
    """

    place_BF: Tensor
    output_BF: Tensor
    pages_BP: Tensor
    page_tokens: int
    lengths_B: Tensor
    slots_B: Tensor

    @classmethod
    def of(cls, state: ResidentState, page_tokens: int) -> Self:
        """Make room; a kernel fills it.

        Capture:
            Safe.
        """
        rows, device = len(state.place_BF), state.place_BF.device
        return cls(
            state.place_BF,
            state.output_BF,
            state.pages_BP,
            page_tokens,
            torch.empty(rows, dtype=torch.int32, device=device),
            torch.empty(rows, dtype=torch.int64, device=device),
        )

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """The last token known of each row, and where it stands, (B,) each."""
        return self.place_BF[:, 0], self.place_BF[:, 1]


def stand(state: ResidentState, page_tokens: int) -> tuple[Tensor, Tensor]:
    """Return each row's length and slot, as `Standing` says, in a launch of their own.

    Capture:
        Safe.
    """
    standing = Standing.of(state, page_tokens)
    rows = len(standing.lengths_B)
    _stand[(-(-rows // _BLOCK),)](
        standing.place_BF,
        standing.output_BF,
        standing.pages_BP,
        standing.lengths_B,
        standing.slots_B,
        rows,
        standing.pages_BP.stride(0),
        PLACE=standing.place_BF.stride(0),
        OUT=standing.output_BF.stride(0),
        PAGE=page_tokens,
        BLOCK=_BLOCK,
        num_warps=1,
    )
    return standing.lengths_B, standing.slots_B


@triton.jit
def find_place(position: tl.tensor, runs: tl.tensor, line: tl.tensor, PAGE: tl.constexpr) -> Any:
    """Return lengths, int32, and slots, int64, of one row or several.

    Args:
        position: Of the last token known.
        runs: Whether the row takes another.
        line: Where its page numbers begin.
    """
    page = tl.load(line + position // PAGE, mask=runs, other=0).to(tl.int64)
    slot = page * PAGE + position % PAGE
    return tl.where(runs, position + 1, 0).to(tl.int32), tl.where(runs, slot, 0)


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
    length_B, slot_B = find_place(position_B, runs_B, pages + row_B * pages_stride, PAGE)
    tl.store(lengths + row_B, length_B, mask=is_row_B)
    tl.store(slots + row_B, slot_B, mask=is_row_B)
