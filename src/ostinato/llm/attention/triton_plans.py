"""How the Triton kernels are cut and compiled for a model, a device and a number of rows.

Everything here was measured on one H200 (bf16, Llama-3-8B's heads, Triton 3.6, 2026-11-29), where a
plain sum reads 4.2 TB/s. Microseconds of one launch, rows x cached tokens:

    keys x warps, programs per processor    1x256   32x256   256x256   32x16384   128x4096
    64 x 4, 2                                7.4     13.7       86       504
    32 x 2, 2                                6.3     13.9
    32 x 2, 4                                        16.0       80                  505 (4.25 TB/s)

In a whole step with 192 tokens a row, as programs per processor, keys x warps (2026-11-30):

    rows    Llama-3-8B        Llama-3.2-1B     SmolLM2-135M
    8       8, 32 x 1         8, 32 x 1        see below      2 to 5 % quicker than 2, 64 x 4
    32      2, 64 x 4         2, 64 x 4        8, 32 x 1      SmolLM2: 16 %
    128                                        8, 32 x 1      within 1 % of the best
    256     16, 16 x 1        8, 32 x 1        6, 32 x 2      8B: 3 % quicker than 8, 32 x 1

Up to 8 rows of SmolLM2 have a program for each query head and row, with all keys at once (5 %).

A few rows want short blocks, for there are few blocks at all; many short rows want many small
programs, which hide each other's beginnings and ends. One loop over the blocks of all of a
program's rows, so that the next row's keys are under way while the last one's end, was hardly
faster at 256 rows (74) and slower at 1 (7.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ostinato.llm.kernels.paged_decode import DecodePlan
from ostinato.llm.kernels.paged_decode_few import FewRowsPlan
from ostinato.llm.kernels.paged_prefill import PrefillPlan

if TYPE_CHECKING:
    from ostinato.llm.attention.base import AttentionShape

# Bytes of one head's key beyond which registers and shared memory hold only small tiles.
_WIDE_BYTES = 256
_FEW_HEADS = 8
_HALF_WIDE = 64
# From so many cached tokens on, keys are not read by each query head of their own.
LONG = 4096
# More query heads than a tensor core's rows that share a key head, and wider numbers, fill the
# registers of a program that takes them all.
_ROWS, _HALF_BYTES = 16, 2
# Whose programs take all query heads of a key head and the whole row (`kernels/together.py`):
# whether there are few key heads, whether heads are wide; the most rows of each plan, ascending.
# None where that was not shown to be faster.
TOGETHER: dict[tuple[bool, bool], tuple[tuple[int, FewRowsPlan | None], ...]] = {
    (True, False): (
        (32, FewRowsPlan(1, 64, 4, 512, 64, 5, ahead=4, least=396)),
        (128, FewRowsPlan(1, 64, 4, 1000, 64, 5, ahead=2)),
    ),
    (False, False): (
        (8, FewRowsPlan(1, 64, 4, 1000, 64, 5, ahead=4)),
        (32, None),
        (64, FewRowsPlan(1, 64, 2, 1000, 32, 5, ahead=2)),
    ),
    (False, True): (
        (32, FewRowsPlan(1, 64, 4, 1000, 64, 5, ahead=2)),
        (128, FewRowsPlan(1, 32, 2, 1000, 32, 5, ahead=3)),
    ),
}


@dataclass(frozen=True, slots=True)
class DecodePlans:
    """Which plan serves how many rows.

    Attributes:
        up_to: The most rows of each plan but the last, ascending.
        heads, kv_heads: Query heads, key heads.
        next_up_to, next_plans: Likewise, where a kernel may begin before the one ahead has ended;
            where there is none, and beyond the last of them, `plans` serve there too.
    """

    up_to: Sequence[int]
    plans: Sequence[DecodePlan]
    heads: int = 1
    kv_heads: int = 1
    next_up_to: Sequence[int] = ()
    next_plans: Sequence[FewRowsPlan | None] = ()

    def fit(self, rows: int) -> DecodePlan:
        """Return the plan for so many rows."""
        return self.plans[sum(rows > most for most in self.up_to)]

    @property
    def programs(self) -> int:
        """The most that any plan has."""
        few = zip(self.next_up_to, self.next_plans, strict=True)
        return max(
            *(plan.programs for plan in self.plans),
            *(plan.programs(most, self.heads, self.kv_heads) for most, plan in few if plan),
            0,
        )

    def fit_next(self, rows: int) -> FewRowsPlan | None:
        """Return the plan for so many rows behind a kernel that has not ended; None: `fit`."""
        at = sum(rows > most for most in self.next_up_to)
        return self.next_plans[at] if at < len(self.next_plans) else None


def decode_plans(
    shape: AttentionShape,
    *,
    device: torch.device,
    dtype: torch.dtype,
    is_invariant: bool,
    programs: int | None,
) -> DecodePlans:
    """Return the plans of decoding.

    Args:
        is_invariant: One plan for all: another block size would add in another order.
        programs: How many share the work; None: what fills the device.
    """

    def share(each: int) -> int:
        """How many programs, if so many lie on a processor."""
        return programs or each * torch.cuda.get_device_properties(device).multi_processor_count

    def plan(each: int, block: int, warps: int, stages: int) -> DecodePlan:
        return DecodePlan(share(each), block, warps, stages)

    if shape.head_dim * dtype.itemsize > _WIDE_BYTES:
        return DecodePlans((), (plan(1, block=32, warps=4, stages=3),), shape.heads)
    some = plan(2, block=64, warps=4, stages=5)
    if is_invariant:
        return DecodePlans((), (some,), shape.heads)
    few = plan(2, block=32, warps=2, stages=5)
    small = plan(8, block=32, warps=1, stages=4)
    many = plan(16, block=16, warps=1, stages=4) if shape.head_dim > _HALF_WIDE else small
    # One long row of few heads would have 18 programs; more that stand by cost nothing.
    short = FewRowsPlan(2, 256, 8, long=LONG, least=share(1))
    if shape.head_dim > _HALF_WIDE:
        short = FewRowsPlan(8, 32, 2, long=LONG)
    has_few = shape.kv_heads < _FEW_HEADS
    nexts: list[tuple[int, FewRowsPlan | None]] = [(4, short)]
    if has_few:
        nexts.append((8, FewRowsPlan(1, 256, 8, long=LONG, least=share(2))))
    if shape.group <= _ROWS and dtype.itemsize == _HALF_BYTES:
        nexts.extend(TOGETHER.get((has_few, shape.head_dim > _HALF_WIDE), ()))
    up_to: Sequence[int] = (4, 16, 32)
    plans: Sequence[DecodePlan] = (few, small, some, many)
    if has_few:
        up_to, plans = (4, 128), (few, small, plan(6, block=32, warps=2, stages=5))
    next_up_to, next_plans = zip(*nexts, strict=True)
    return DecodePlans(up_to, plans, shape.heads, shape.kv_heads, next_up_to, next_plans)


def prefill_plan(shape: AttentionShape, dtype: torch.dtype) -> PrefillPlan:
    """Return the plan of prefilling."""
    least = 1 << (shape.group - 1).bit_length()
    if dtype == torch.float32:  # no tensor cores: the scores are computed in registers
        return PrefillPlan(max(32, least), block=32, warps=8, stages=1)
    if shape.head_dim > 128:
        return PrefillPlan(max(64, least), block=32, warps=4, stages=2)
    return PrefillPlan(128 if shape.head_dim > _HALF_WIDE else 64, block=64, warps=4, stages=3)
