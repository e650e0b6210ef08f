"""Attention of one new token per row over paged keys and values, in one launch.

The work is every block of keys of every row and key head, put in one line and cut into as many
equal stretches as there are programs. So one row of 16,000 tokens beside 31 short ones keeps the
whole device busy, a batch of 1 does too, and a row of padding costs nothing: time follows the
tokens that are really there, and the launch looks the same whatever they are (a recorded one serves
every length). A program reads a stretch of a row once for all query heads that share it. A row that
several programs share is put together by the last of them to arrive, always in the order of the
keys, so equal inputs give equal bits.

That cut depends on all rows, and so do a row's last bits. In the invariant mode a row is cut into
pieces at places that follow from its own length alone, and a piece is one program's: a row's bits
then do not depend on its company, at the price of more partial results.

Shapes: B rows, H query heads, G key heads, R = H / G, D head size, P pages per row; U parts of a
row put together at a time. `_PAD` is the next power of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.attending import LOG2_E, count_pad
from ostinato.llm.kernels.early import launching, wait_for_previous
from ostinato.llm.kernels.stretches import attend_stretches

if TYPE_CHECKING:
    from torch import Tensor

# In the invariant mode a row is cut into at most so many pieces, none shorter than so many tokens.
_PIECES, _LEAST = 16, 128


@dataclass(frozen=True, slots=True)
class Workspace:
    """What the programs of a launch tell each other; launches that share it must take turns.

    Attributes:
        output, top, total: float32 partial results: the output before it is divided by the sum of
            weights, the largest score, that sum.
        arrived: int32, how many programs are done with a row; zero between launches.
    """

    output: Tensor
    top: Tensor
    total: Tensor
    arrived: Tensor

    @classmethod
    def empty(
        cls, places: int, counters: int, group: int, size: int, device: torch.device
    ) -> Workspace:
        """Make room for `places` partial results of one row and key head."""
        return cls(
            torch.empty(places, group, size, dtype=torch.float32, device=device),
            torch.empty(places, group, dtype=torch.float32, device=device),
            torch.empty(places, group, dtype=torch.float32, device=device),
            torch.zeros(counters, dtype=torch.int32, device=device),
        )


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How a launch is cut and compiled.

    Attributes:
        programs: How many there are; they take equal shares of the keys.
        block: Keys taken in at a time.
    """

    programs: int
    block: int
    warps: int
    stages: int


def paged_decode(
    q_BHD: Tensor,
    keys: Tensor,
    values: Tensor,
    pages_BP: Tensor,
    lengths_B: Tensor,
    *,
    scale: float,
    window: int | None,
    plan: DecodePlan,
    shared: Workspace | None,
    owner_B: Tensor | None = None,
    is_early: bool = False,
    knows_lengths: bool = False,
) -> Tensor:
    """Return (B, H, D); rows of length 0 are zero.

    Args:
        keys, values: (pages, page_tokens, G, D), contiguous.
        pages_BP: int32 or int64; the numbers of one row are contiguous.
        lengths_B: int32 or int64.
        shared: Room for two partial results and one counter per program; None: the invariant mode,
            which makes its own.
        owner_B: int32, the row of `pages_BP` that holds each row's pages; None: the same.
        is_early: Whether to begin before the kernel ahead has ended (`early.py`).
        knows_lengths: Whether lengths may be read before the wait: the kernel ahead did not write
            them, and lets others begin after its own wait.

    Capture:
        Safe. Reads sizes on the device and never waits for it.
    """
    rows, heads, size = q_BHD.shape
    _, page_tokens, kv_heads, _ = keys.shape
    group = heads // kv_heads
    if q_BHD.stride(2) != 1:
        q_BHD = q_BHD.contiguous()
    if shared is None:
        count = rows * kv_heads
        work = Workspace.empty(count * _PIECES, count, group, size, q_BHD.device)
    else:
        work = shared
    out_BHD = q_BHD.new_empty(rows, heads, size)
    _decode[(plan.programs,)](
        q_BHD,
        keys,
        values,
        pages_BP,
        lengths_B,
        pages_BP if owner_B is None else owner_B,
        out_BHD,
        work.output,
        work.top,
        work.total,
        work.arrived,
        rows,
        pages_BP.stride(0),
        q_BHD.stride(0),
        q_BHD.stride(1),
        scale * LOG2_E,
        window or 0,
        G=kv_heads,
        R=group,
        D=size,
        PAGE=page_tokens,
        ROWS_PAD=count_pad(rows),
        R_PAD=triton.next_power_of_2(group),
        M=max(triton.next_power_of_2(group), 16),
        D_PAD=triton.next_power_of_2(size),
        BLOCK=plan.block,
        HAS_WINDOW=window is not None,
        HAS_OWNER=owner_B is not None,
        PIECES=_PIECES if shared is None else 0,
        LEAST=_LEAST,
        EARLY=is_early,
        KNOWS=knows_lengths,
        num_warps=plan.warps,
        num_stages=plan.stages,
        **launching(is_early=is_early),
    )
    return out_BHD


# Sizes that vary from call to call must not make one kernel each.
@triton.jit(do_not_specialize=("rows", "pages_stride", "window"))
def _decode(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    pages: tl.tensor,
    lengths: tl.tensor,
    owners: tl.tensor,
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
    G: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS_PAD: tl.constexpr,
    R_PAD: tl.constexpr,
    M: tl.constexpr,
    D_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_OWNER: tl.constexpr,
    PIECES: tl.constexpr,
    LEAST: tl.constexpr,
    EARLY: tl.constexpr,
    KNOWS: tl.constexpr,
) -> None:
    if not KNOWS:
        wait_for_previous(EARLY)
    attend_stretches(
        tl.program_id(0),
        tl.num_programs(0),
        q,
        keys,
        values,
        pages,
        lengths,
        owners,
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
        BLOCK,
        HAS_WINDOW,
        HAS_OWNER,
        PIECES,
        LEAST,
        EARLY,
    )
