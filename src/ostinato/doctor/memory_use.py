"""The device's memory as the allocator and the driver see it, in plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The allocator's counters after one step."""

    step: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A private memory pool, such as a CUDA graph's.

    Attributes:
        owners: Recordings that are alive and use it; 0 means that nobody can use it again.
    """

    pool: str
    reserved_bytes: int
    allocated_bytes: int
    owners: int


@dataclass(frozen=True, slots=True)
class AllocatorUse:
    """The caching allocator at the end of the watch.

    Attributes:
        free_bytes: Reserved from the driver, and in no tensor.
        largest_free_bytes: The largest piece of it that one tensor could have.
        mapped_free_bytes: With expandable segments: free memory whose pages can be given back or
            joined, so that it is no splinter.
        after_gc: The free and the largest free bytes after gc.collect() and empty_cache(), which
            tells splinters from garbage.
        largest_request_bytes: The largest tensor that the program asked for while it was watched.
        retries: Times the allocator had to free its cache to go on; `ooms` times it could not.
        growth: The counters over the steps, evenly picked.
    """

    device: str
    total_bytes: int
    device_free_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    free_bytes: int
    largest_free_bytes: int
    expandable: bool = False
    mapped_free_bytes: int = 0
    after_gc_free_bytes: int | None = None
    after_gc_largest_free_bytes: int | None = None
    after_gc_allocated_bytes: int | None = None
    largest_request_bytes: int = 0
    inactive_blocks: int = 0
    retries: int = 0
    ooms: int = 0
    other_processes_bytes: int = 0
    pools: tuple[PoolUse, ...] = ()
    growth: tuple[MemoryPoint, ...] = ()
