"""How many launches a call makes, and what one launch for all of them could save. Pure.

The constants are of one H200 with torch 2.11 and 16 slow host cores, 2026-11-29. They put the eager
and the replayed time of BERT-base, ResNet-50 and an 8B decoder within a factor of two; on another
machine they are further off, so that every number here is labelled inferred.
"""

from __future__ import annotations

from dataclasses import dataclass

MEASURED = "one NVIDIA H200, torch 2.11, 2026-11-29"
EAGER_US_PER_CALL = 40.0
"""Host time of one call inside a model: 34 to 60 us in BERT-base and ResNet-50; 12 us at the least,
for one small call in a bare loop."""
GPU_US_PER_KERNEL = 5.0
"""A small kernel within a replayed model: 4.5 us in ResNet-50, 6.4 in BERT-base at batch 1; 1.04 at
the least."""
REPLAY_US = 5.9
REPLAY_US_PER_KERNEL = (13.0 - 5.9) / 1000
"""Host time of one replay: 5.9 us for one kernel, 13 us for a thousand."""
BYTES_PER_US = 4.09e6
"""A plain reduction reads 4.09 TB/s."""
FLOPS_PER_US_LOW = 500e6
FLOPS_PER_US_FULL = 40e6
"""What large products reach, 16-bit and 32-bit: half to two thirds of the chip's peak; assumed."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one call costs, eager and replayed; every number inferred, none measured here.

    Attributes:
        calls: Calls of torch that start work on the GPU.
        launches: Kernels and copies of one call.
        gpu_us: How long the GPU works.
        eager_us: The longer of the GPU's work and the host's.
        replayed_us: The same with one launch for all.
    """

    calls: int
    launches: int
    moved_bytes: int
    flops: int
    gpu_us: float
    eager_us: float
    replayed_us: float
    basis: str = "inferred"
    constants: str = MEASURED

    @property
    def gain(self) -> float:
        """How many times faster the call could become."""
        return self.eager_us / self.replayed_us if self.replayed_us else 1.0


def estimate(work: list[tuple[int, int, int, bool]]) -> Estimate:
    """Estimate from (kernels, bytes, flops, is 16-bit) of each call."""
    gpu_us = 0.0
    for kernels, moved_bytes, flops, is_low in work:
        rate = FLOPS_PER_US_LOW if is_low else FLOPS_PER_US_FULL
        gpu_us += max(kernels * GPU_US_PER_KERNEL, moved_bytes / BYTES_PER_US, flops / rate)
    launches = sum(kernels for kernels, _, _, _ in work)
    return Estimate(
        calls=len(work),
        launches=launches,
        moved_bytes=sum(moved for _, moved, _, _ in work),
        flops=sum(flops for _, _, flops, _ in work),
        gpu_us=round(gpu_us, 1),
        eager_us=round(max(len(work) * EAGER_US_PER_CALL, gpu_us), 1),
        replayed_us=round(max(REPLAY_US + launches * REPLAY_US_PER_KERNEL, gpu_us), 1),
    )
