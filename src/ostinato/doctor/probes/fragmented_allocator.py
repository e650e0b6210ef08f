"""OST601 fragmented-allocator.

What it sees: the allocator's blocks at their worst, before and after a garbage collection.
How it decides: 256 MiB and 15 % of what is reserved lie free, the largest piece is under a quarter
of that, and it would not hold the largest tensor in use, or the allocator had to retry. With
expandable segments whole free pages count as one piece, because they can be mapped anew.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.memory_use import AllocatorUse
from ostinato.doctor.probe import Verdict, percent
from ostinato.units import format_bytes

RULE = RULES["OST601"]
_LEAST_BYTES = 256 << 20
_FREE = 0.15
_PIECE = 0.25


def probe(evidence: Evidence) -> Verdict:
    """Find free memory in splinters."""
    memory = evidence.allocator
    if memory is None or not memory.reserved_bytes or not _is_splintered(memory):
        return None
    fact = (
        f"{format_bytes(memory.free_bytes)} of {format_bytes(memory.reserved_bytes)} reserved lie "
        f"free in {memory.inactive_blocks} pieces, and the largest has "
        f"{format_bytes(memory.largest_free_bytes)}"
    )
    if memory.largest_request_bytes > memory.largest_free_bytes:
        fact += f"; the program's largest tensor has {format_bytes(memory.largest_request_bytes)}"
    if memory.after_gc_free_bytes is not None:
        fact += f"; after a collection {format_bytes(memory.after_gc_free_bytes)} are free"
    if memory.retries:
        fact += f"; the allocator had to retry {memory.retries} times"
    fact += f" ({percent(memory.free_bytes / memory.reserved_bytes)} of the memory)"
    cost: Cost | None = None
    return RULE.finding(fact, None, cost)


def _is_splintered(memory: AllocatorUse) -> bool:
    enough = memory.free_bytes >= max(_LEAST_BYTES, _FREE * memory.reserved_bytes)
    small = memory.largest_free_bytes < _PIECE * memory.free_bytes
    needed = memory.largest_request_bytes > memory.largest_free_bytes or memory.retries > 0
    return enough and small and needed
