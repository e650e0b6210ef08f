"""OST603 near-oom.

What it sees: allocations that failed or had to be tried again, and what was left of the device.
How it decides: any failure or retry, or less than 2 % of the device left. An engine that fills the
device to 90 % on purpose leaves more than that.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost
from ostinato.doctor.memory_use import AllocatorUse
from ostinato.doctor.probe import Verdict, cost_in_steps, times
from ostinato.units import format_bytes

RULE = RULES["OST603"]
_LEFT = 0.02
_RETRY_US = 30e3  # freeing the cache and asking again: a wait for the device, and cudaFree


def probe(evidence: Evidence) -> Verdict:
    """Find a device that is nearly full."""
    memory = evidence.allocator
    if memory is None or not memory.total_bytes:
        return None
    left = memory.device_free_bytes / memory.total_bytes
    if not memory.ooms and not memory.retries and left >= _LEFT:
        return None
    cost: Cost | None = None
    if memory.ooms:
        fact = f"an allocation failed {times(memory.ooms)}"
    elif memory.retries:
        fact = f"the allocator had to free its cache and ask again {times(memory.retries)}"
        cost = cost_in_steps(evidence, memory.retries * _RETRY_US, basis=Basis.INFERRED)
    else:
        fact = f"{format_bytes(memory.device_free_bytes)} of the device are left"
    return RULE.finding(f"{fact}; {_who(memory)}", None, cost)


def _who(memory: AllocatorUse) -> str:
    cache = memory.reserved_bytes - memory.allocated_bytes
    parts = [
        f"tensors hold {format_bytes(memory.allocated_bytes)}",
        f"the cache {format_bytes(max(0, cache))}",
    ]
    if memory.other_processes_bytes:
        parts.append(f"other processes {format_bytes(memory.other_processes_bytes)}")
    return f"{', '.join(parts)} of {format_bytes(memory.total_bytes)}"
