"""The memory pool of one CUDA recording: how much it holds, and how a failed one is given back.

A recording owns one private pool of torch's allocator, so its bytes can be counted and returned by
themselves, unless its runner was asked to let recordings share theirs (`SharedPool`).
`cuda_capture.py` measures it, and calls `reclaim` when a capture broke.
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


class SharedPool:
    """A pool that several recordings use, one at a time.

    Attributes:
        use: On which stream one of them ran last.
    """

    __slots__ = ("_graphs", "_pool", "use")

    def __init__(self) -> None:
        self.use = Use()
        self._graphs = 0
        self._pool = new_pool()

    def enter(self) -> Pool:
        """Count one more graph; return the pool that it goes to."""
        if self._graphs <= 0:
            # The allocator has closed the pool with its last graph, or never opened it.
            self._pool, self._graphs = new_pool(), 0
        self._graphs += 1
        return self._pool

    def leave(self, pool: Pool) -> None:
        """Count one graph less; call it before the graph is reset."""
        if pool == self._pool:
            self._graphs -= 1

    def abandon(self) -> None:
        """Take a fresh pool from here on: the state of the present one is not known."""
        self._pool, self._graphs = new_pool(), 0


class Use:
    """The stream on which a recording, or one of those that share memory, was used last."""

    __slots__ = ("raw", "stream")

    def __init__(self) -> None:
        self.stream: torch.cuda.Stream | None = None
        self.raw = -1

    def move_to(self, stream: torch.cuda.Stream) -> None:
        """Order what follows on `stream` after the last use."""
        if self.stream is not None and self.raw != stream.cuda_stream:
            stream.wait_stream(self.stream)
        self.stream, self.raw = stream, stream.cuda_stream

    def wait(self) -> None:
        """Wait for the last use alone, not for the device."""
        if self.stream is not None:
            self.stream.record_event().synchronize()


def reserved_bytes(device_index: int) -> int:
    """Return the bytes that torch's allocator holds on a device, unused ones included.

    What a private pool takes from the driver is the growth of this over its capture: a private pool
    never takes blocks of the common one. (The allocator's snapshot tells a pool's segments apart,
    but in torch 2.11 a few hundred snapshots corrupt the interpreter's memory; seen on an H200.)

    Graph nodes and kernel arguments, which the driver keeps elsewhere, are not in it: the driver
    reports only the whole device's free memory, and that moves with every other process.
    """
    return torch.cuda.memory_reserved(device_index)


def reclaim(pool: Pool, device_index: int, *, is_shared: bool) -> None:
    """Give back the pool of a capture that could not be ended.

    When `cudaStreamEndCapture` fails, torch 2.11 throws before it stops diverting allocations into
    the pool, and no `reset()` drops the pool's count afterwards, so its memory stays taken until
    the process ends (pytorch#180395, pytorch#190348; later releases do one or both themselves).
    Dropping the count twice would break `empty_cache()` for good, so it is dropped only where the
    allocator shows that nobody has: every block is free, and still `empty_cache()` could not
    return it. The other graphs of a shared pool need its free blocks, so there it stays.

    Capture:
        Unsafe: frees memory, and waits for the device.
    """
    with suppress(RuntimeError):  # torch got that far by itself
        torch._C._cuda_endAllocateToPool(device_index, pool)
    if is_shared:
        return
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
