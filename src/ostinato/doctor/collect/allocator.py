"""The device's memory over the steps: what is allocated, what is free, and in which pieces.

Counters are read every so many steps. A picture of all blocks is taken seldom, because it takes
milliseconds; the one with the smallest piece against the free memory is kept.
"""

from __future__ import annotations

import gc
from collections import deque
from time import perf_counter
from typing import Any

import torch

from ostinato.doctor.collect.gpu_use import has_gpu, is_capturing, uses_gpu
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.memory_use import AllocatorUse, MemoryPoint, PoolUse

_MOST_POINTS = 512
_SHARE = 0.003  # of the time may go into looking
_ALLOWANCE_S = 0.02  # of looking beforehand, so that a short watch sees something
_PICTURE_EVERY_S = 0.1
_COUNTERS_EVERY_S = 0.02


class Allocator:
    """Looks at the caching allocator of the current device."""

    name = "allocator"

    def __init__(self, notebook: Notebook, *, settle: bool) -> None:
        self._notebook = notebook
        self._settle = settle
        self._points: deque[MemoryPoint] = deque(maxlen=_MOST_POINTS)
        self._next_s = 0.0
        self._next_picture_s = 0.0
        self._spent_s = 0.0
        self._since_s = perf_counter()
        self._before: dict[str, int] = {}
        self._worst: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._after: tuple[int, int, int] | None = None
        self._total = 0
        self._free = 0
        self._least_free = 0
        self._other = 0

    def start(self) -> None:
        """Note where the counters stand."""
        if not has_gpu():
            raise OSError("there is no GPU whose memory could be looked at")
        self._before = _counters()

    def step(self, count: int) -> None:
        """Hear that a step ended."""
        now = perf_counter()
        if now < self._next_s or not uses_gpu() or is_capturing():
            return
        if self._spent_s > _ALLOWANCE_S + _SHARE * (now - self._since_s):
            return
        stats = torch.cuda.memory_stats()
        point = MemoryPoint(
            count, stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
        )
        self._points.append(point)
        if now >= self._next_picture_s:
            self._look()
            self._next_picture_s = perf_counter() + _PICTURE_EVERY_S
        self._spent_s += perf_counter() - now
        self._next_s = perf_counter() + _COUNTERS_EVERY_S

    def _look(self) -> None:
        picture = picture_of(torch.cuda.memory_snapshot())
        self._last = picture
        self._free, self._total = torch.cuda.mem_get_info()
        ours = torch.cuda.memory_reserved()
        self._other = max(0, self._total - self._free - ours)
        if not self._worst or _splintered(picture) > _splintered(self._worst):
            self._worst = picture

    def stop(self) -> None:
        """Take a last look, and one after a collection where the process ends anyway."""
        if not uses_gpu() or is_capturing():
            return
        if not self._last:  # what the program has let go of by now says nothing about its steps
            self._look()
        if self._settle:
            gc.collect()
            torch.cuda.empty_cache()
            after = picture_of(torch.cuda.memory_snapshot())
            self._after = (after["free"], after["largest"], torch.cuda.memory_allocated())

    def fields(self) -> dict[str, Any]:
        """Return the picture that was worst, and the counters."""
        picture, now = self._worst or self._last, _counters()
        if not picture:
            return {}
        stats = torch.cuda.memory_stats()
        return {
            "allocator": AllocatorUse(
                device=torch.cuda.get_device_name(),
                total_bytes=self._total,
                device_free_bytes=self._free,
                allocated_bytes=picture["allocated"],
                reserved_bytes=picture["reserved"],
                peak_allocated_bytes=stats["allocated_bytes.all.peak"],
                free_bytes=picture["free"],
                largest_free_bytes=picture["largest"],
                expandable=picture["expandable"],
                mapped_free_bytes=picture["joinable"],
                after_gc_free_bytes=self._after[0] if self._after else None,
                after_gc_largest_free_bytes=self._after[1] if self._after else None,
                after_gc_allocated_bytes=self._after[2] if self._after else None,
                largest_request_bytes=picture["request"],
                inactive_blocks=picture["blocks"],
                retries=now["num_alloc_retries"] - self._before["num_alloc_retries"],
                ooms=now["num_ooms"] - self._before["num_ooms"],
                other_processes_bytes=self._other,
                pools=picture["pools"],
                growth=tuple(self._points),
            )
        }


def _counters() -> dict[str, int]:
    stats = torch.cuda.memory_stats()
    return {name: int(stats.get(name, 0)) for name in ("num_alloc_retries", "num_ooms")}


def _splintered(picture: dict[str, Any]) -> float:
    free: int = picture["free"]
    return float(free - picture["largest"])


def picture_of(segments: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the blocks of all segments come to.

    In an expandable segment free pages can be unmapped and mapped elsewhere, so all of its free
    blocks count as one piece that is joinable; blocks smaller than a page of 2 MiB do not.
    """
    page = 2 << 20
    free = largest = joinable = blocks = allocated = reserved = request = 0
    expandable = False
    pools: dict[str, list[int]] = {}
    for segment in segments:
        reserved += segment["total_size"]
        allocated += segment["allocated_size"]
        is_expandable = bool(segment.get("is_expandable", False))
        expandable = expandable or is_expandable
        pool = segment.get("segment_pool_id", (0, 0))
        if tuple(pool) != (0, 0):
            counts = pools.setdefault(str(tuple(pool)), [0, 0])
            counts[0] += segment["total_size"]
            counts[1] += segment["allocated_size"]
            continue  # a graph's own memory is no free memory of the program's
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                blocks += 1
                free += block["size"]
                largest = max(largest, block["size"])
                if is_expandable:
                    joinable += block["size"] // page * page
            else:
                request = max(request, block.get("requested_size", block["size"]))
    return {
        "free": free,
        "largest": max(largest, joinable),
        "joinable": joinable,
        "blocks": blocks,
        "allocated": allocated,
        "reserved": reserved,
        "request": request,
        "expandable": expandable,
        "pools": tuple(PoolUse(p, total, used, owners=-1) for p, (total, used) in pools.items()),
    }
