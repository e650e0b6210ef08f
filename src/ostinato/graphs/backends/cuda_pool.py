"""The memory pool of one CUDA recording: how much it holds, and how a failed one is given back.

Every recording owns one private pool of torch's allocator, so its bytes can be counted and returned
by themselves. `cuda_capture.py` measures it, and calls `reclaim` when a capture broke.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import cache
from typing import Any

import torch

Pool = tuple[int, int]


def new_pool() -> Pool:
    """Return the name of a fresh private pool; it takes memory only once a capture uses it."""
    return torch.cuda.graph_pool_handle()


def reserved_bytes(device_index: int) -> int:
    """Return the bytes that torch's allocator holds on a device, unused ones included.

    What a private pool takes from the driver is the growth of this over its capture: a private pool
    never takes blocks of the common one. (The allocator's snapshot tells a pool's segments apart,
    but in torch 2.11 a few hundred snapshots corrupt the interpreter's memory; seen on an H200.)

    Graph nodes and kernel arguments, which the driver keeps elsewhere, are not in it: the driver
    reports only the whole device's free memory, and that moves with every other process.
    """
    return torch.cuda.memory_reserved(device_index)


def reclaim(pool: Pool, device_index: int) -> None:
    """Give back the pool of a capture that could not be ended.

    When `cudaStreamEndCapture` fails, torch 2.11 throws before it stops diverting allocations into
    the pool, and no `reset()` drops the pool's count afterwards, so its memory stays taken until
    the process ends (pytorch#180395, pytorch#190348; later releases do one or both themselves).
    Dropping the count twice would break `empty_cache()` for good, so it is dropped only where the
    allocator shows that nobody has: every block is free, and still `empty_cache()` could not
    return it.

    Capture:
        Unsafe: frees memory, and waits for the device.
    """
    with suppress(RuntimeError):  # torch got that far by itself
        torch._C._cuda_endAllocateToPool(device_index, pool)
    torch.cuda.empty_cache()
    left = _segments(pool)
    if left and all(segment["active_size"] == 0 for segment in left):
        torch._C._cuda_releasePool(device_index, pool)
        torch.cuda.empty_cache()


def _segments(pool: Pool) -> list[dict[str, Any]]:
    if _traces_can_be_left_out():
        return list(torch.cuda.memory_snapshot(pool, include_traces=False))
    return list(torch.cuda.memory_snapshot(pool))


@cache
def _traces_can_be_left_out() -> bool:
    return "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters
