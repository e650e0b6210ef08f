"""OST602 pool-leak.

What it sees: what is allocated after each of many steps, and private pools with no recording alive.
How it decides: over the second half of the watch memory grew in at least 9 of 10 looks, by 16 MiB
and 5 % or more, and as fast as before: a cache that fills up slows down. A pool that nobody owns
and that keeps 64 MiB is a leak by itself.
"""

from __future__ import annotations

from itertools import pairwise

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost, Finding
from ostinato.doctor.memory_use import AllocatorUse, MemoryPoint
from ostinato.doctor.probe import Verdict
from ostinato.units import format_bytes

RULE = RULES["OST602"]
_LOOKS = 8
_RISING = 0.9
_LEAST_BYTES = 16 << 20
_LEAST_SHARE = 0.05
_STEADY = 0.5
_POOL_BYTES = 64 << 20


def probe(evidence: Evidence) -> Verdict:
    """Find memory that only grows."""
    memory = evidence.allocator
    if memory is None:
        return None
    lost = [p for p in memory.pools if p.owners == 0 and p.reserved_bytes >= _POOL_BYTES]
    if lost:
        total = sum(pool.reserved_bytes for pool in lost)
        fact = f"{len(lost)} graph pools keep {format_bytes(total)}, and no recording uses them"
        return RULE.finding(fact)
    return _growing(memory)


def _growing(memory: AllocatorUse) -> Finding | None:
    points = memory.growth
    if len(points) < _LOOKS:
        return None
    half = points[len(points) // 2 :]
    grown = half[-1].allocated_bytes - half[0].allocated_bytes
    rises = [a.allocated_bytes < b.allocated_bytes for a, b in pairwise(half)]
    if grown < max(_LEAST_BYTES, _LEAST_SHARE * half[0].allocated_bytes):
        return None
    if sum(rises) < _RISING * len(rises) or _slope(half) < _STEADY * _slope(points):
        return None
    per_step = _slope(half)
    left = memory.total_bytes - half[-1].reserved_bytes
    fact = f"{format_bytes(int(per_step))} more are allocated with every step"
    if per_step > 0 and left > 0:
        fact += f"; at this rate the GPU is full after {left / per_step:.0f} more"
    cost: Cost | None = None
    return RULE.finding(fact, None, cost)


def _slope(points: tuple[MemoryPoint, ...]) -> float:
    steps = points[-1].step - points[0].step
    return (points[-1].allocated_bytes - points[0].allocated_bytes) / steps if steps else 0.0
