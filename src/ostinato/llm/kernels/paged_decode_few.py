"""Attention of one new token of a few rows over paged keys and values, in one launch.

With one or a few short rows, finding out who does what takes longer than doing it. So each program
has its place before it starts: a head of a row and a piece of its keys. It loads all of those but
the newest before the kernel ahead, which is still computing that one, has ended. With very few rows
that is a query head, of which there are more (`apart.py`): those that share keys read them once
each, from the cache of the processor mostly. With more it is a key head and all of its queries
(`together.py`).

Long rows would be read several times over, so from a length on (`LONG`) the same launch does as
`paged_decode` does.

Shapes: B rows, H query heads, G key heads, R = H / G, D head size, P pages per row, S pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from ostinato.llm.kernels.apart import attend_apart
from ostinato.llm.kernels.attending import LOG2_E, count_pad
from ostinato.llm.kernels.early import launching
from ostinato.llm.kernels.stretches import attend_stretches
from ostinato.llm.kernels.together import attend_together

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.kernels.paged_decode import Workspace


@dataclass(frozen=True, slots=True)
class FewRowsPlan:
    """How a launch is cut and compiled.

    Attributes:
        pieces: In how many a row's keys are cut.
        block: Keys taken in at a time.
        long: From how many cached tokens on the longest row is shared out differently.
        long_block: Keys taken in at a time then.
        stages: How many of those are under way.
        ahead: Blocks asked for before the wait by a program that takes all query heads of a key
            head; 0: a program takes one query head, and asks for one block.
        least: Programs that there are at least, for long rows to be shared out to.
    """

    pieces: int
    block: int
    warps: int
    long: int
    long_block: int = 32
    stages: int = 3
    ahead: int = 0
    least: int = 0

    def grid(self, rows: int, heads: int, kv_heads: int) -> tuple[int, int, int]:
        """Return how many pieces, heads and rows have programs; some rows may be none."""
        each = kv_heads if self.ahead else heads
        return self.pieces, each, max(rows, -(-self.least // (self.pieces * each)))

    def programs(self, rows: int, heads: int, kv_heads: int) -> int:
        """Return how many programs there are."""
        return math.prod(self.grid(rows, heads, kv_heads))


def paged_decode_few(
    q_BHD: Tensor,
    keys: Tensor,
    values: Tensor,
    pages_BP: Tensor,
    lengths_B: Tensor,
    *,
    scale: float,
    window: int | None,
    plan: FewRowsPlan,
    shared: Workspace,
    is_early: bool,
) -> Tensor:
    """Return (B, H, D); rows of length 0 are zero.

    Begun early, it reads lengths, pages, and all keys and values but the newest token's before the
    wait: the kernel ahead writes nothing else, and lets others begin after its own wait.

    Args:
        keys, values: (pages, page_tokens, G, D), contiguous.
        pages_BP: int32 or int64; the numbers of one row are contiguous.
        lengths_B: int32 or int64.
        shared: Room for two partial results of R heads and one counter per program.

    Capture:
        Safe. Reads sizes on the device and never waits for it.
    """
    rows, heads, size = q_BHD.shape
    _, page_tokens, kv_heads, _ = keys.shape
    group = heads // kv_heads
    if q_BHD.stride(2) != 1:
        q_BHD = q_BHD.contiguous()
    out_BHD = q_BHD.new_empty(rows, heads, size)
    _decode_few[plan.grid(rows, heads, kv_heads)](
        q_BHD,
        keys,
        values,
        pages_BP,
        lengths_B,
        out_BHD,
        shared.output,
        shared.top,
        shared.total,
        shared.arrived,
        rows,
        pages_BP.stride(0),
        q_BHD.stride(0),
        q_BHD.stride(1),
        scale * LOG2_E,
        window or 0,
        plan.long,
        G=kv_heads,
        R=group,
        D=size,
        PAGE=page_tokens,
        ROWS_PAD=count_pad(rows),
        R_PAD=triton.next_power_of_2(group),
        M=max(triton.next_power_of_2(group), 16),
        D_PAD=triton.next_power_of_2(size),
        PIECES=plan.pieces,
        BLOCK=plan.block,
        LONG_BLOCK=plan.long_block,
        AHEAD=plan.ahead,
        # Of a piece, which begins anywhere in a page.
        PAGES=triton.next_power_of_2(plan.long // page_tokens + 2) if plan.ahead else 0,
        HAS_WINDOW=window is not None,
        EARLY=is_early,
        num_warps=plan.warps,
        num_stages=plan.stages,
        **launching(is_early=is_early),
    )
    return out_BHD


@triton.jit(do_not_specialize=("rows", "pages_stride", "window", "long"))
def _decode_few(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    pages: tl.tensor,
    lengths: tl.tensor,
    out: tl.tensor,
    part_output: tl.tensor,
    part_top: tl.tensor,
    part_total: tl.tensor,
    arrived: tl.tensor,
    rows: tl.tensor,
    pages_stride: tl.tensor,
    q_row_stride: tl.tensor,
    q_head_stride: tl.tensor,
    scale: tl.tensor,
    window: tl.tensor,
    long: tl.tensor,
    G: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS_PAD: tl.constexpr,
    R_PAD: tl.constexpr,
    M: tl.constexpr,
    D_PAD: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK: tl.constexpr,
    LONG_BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    PAGES: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    piece = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.program_id(2)
    row_B = tl.arange(0, ROWS_PAD)
    length_B = tl.load(lengths + row_B, mask=row_B < rows, other=0).to(tl.int32)
    if tl.max(length_B, 0) >= long:
        attend_stretches(
            (row * tl.num_programs(1) + head) * PIECES + piece,
            tl.num_programs(2) * tl.num_programs(1) * PIECES,
            q,
            keys,
            values,
            pages,
            lengths,
            lengths,
            out,
            part_output,
            part_top,
            part_total,
            arrived,
            rows,
            pages_stride,
            q_row_stride,
            q_head_stride,
            scale,
            window,
            G,
            R,
            D,
            PAGE,
            ROWS_PAD,
            R_PAD,
            M,
            D_PAD,
            LONG_BLOCK,
            HAS_WINDOW,
            False,
            0,
            0,
            EARLY,
        )
    elif row < rows:
        length = tl.sum(tl.where(row_B == row, length_B, 0), 0)
        table = pages + row.to(tl.int64) * pages_stride
        query = q + row.to(tl.int64) * q_row_stride
        if AHEAD:
            attend_together(
                row,
                head,
                piece,
                length,
                query,
                keys,
                values,
                table,
                out,
                part_output,
                part_top,
                part_total,
                arrived,
                q_head_stride,
                scale,
                window,
                G,
                R,
                D,
                PAGE,
                PAGES,
                R_PAD,
                M,
                D_PAD,
                PIECES,
                BLOCK,
                AHEAD,
                HAS_WINDOW,
                EARLY,
            )
        else:
            attend_apart(
                row,
                head,
                piece,
                length,
                query + head * q_head_stride,
                keys,
                values,
                table,
                out,
                part_output,
                part_top,
                part_total,
                arrived,
                scale,
                window,
                G,
                R,
                D,
                PAGE,
                D_PAD,
                PIECES,
                BLOCK,
                HAS_WINDOW,
                EARLY,
            )
