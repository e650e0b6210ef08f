"""What collectors make of a GPU's own books: the allocator's blocks, the profiler's events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from ostinato.doctor.activity import KernelUse
from ostinato.doctor.collect.allocator import picture_of
from ostinato.doctor.collect.profiler import summarise

MIB = 1 << 20


def block(mib: float, state: str = "inactive") -> dict[str, Any]:
    return {"size": int(mib * MIB), "requested_size": int(mib * MIB), "state": state}


def segment(
    *blocks: dict[str, Any], pool: tuple[int, int] = (0, 0), expandable: bool = False
) -> Any:
    return {
        "total_size": sum(each["size"] for each in blocks),
        "allocated_size": sum(e["size"] for e in blocks if e["state"] != "inactive"),
        "segment_pool_id": pool,
        "is_expandable": expandable,
        "blocks": list(blocks),
    }


def test_splinters_are_counted_and_the_largest_is_known() -> None:
    used = block(10, "active_allocated")
    picture = picture_of([segment(block(2), used, block(8)), segment(block(4))])
    assert (picture["free"], picture["largest"], picture["blocks"]) == (14 * MIB, 8 * MIB, 3)
    assert (picture["allocated"], picture["reserved"]) == (10 * MIB, 24 * MIB)
    assert picture["request"] == 10 * MIB


def test_whole_pages_of_expandable_segments_join_into_one_piece() -> None:
    used = block(10, "active_allocated")
    picture = picture_of([segment(block(7), used, block(9), block(1.5), expandable=True)])
    assert picture["free"] == int(17.5 * MIB)
    assert picture["largest"] == 14 * MIB  # 6 + 8: what is no whole page of 2 MiB is left over
    assert picture["expandable"]


def test_the_memory_of_a_graph_is_a_pool_and_no_free_memory() -> None:
    picture = picture_of([segment(block(64), pool=(0, 3)), segment(block(2))])
    assert picture["free"] == 2 * MIB
    (pool,) = picture["pools"]
    assert (pool.reserved_bytes, pool.allocated_bytes) == (64 * MIB, 0)


class Device(Enum):
    CPU = 0
    CUDA = 1


@dataclass(frozen=True)
class Event:
    """One raw event, as the profiler hands it out."""

    what: str
    began_us: int
    us: int
    device: Device = Device.CUDA
    correlation: int = 0
    size: int = 0

    def name(self) -> str:
        return self.what

    def device_type(self) -> Device:
        return self.device

    def start_ns(self) -> int:
        return self.began_us * 1000

    def duration_ns(self) -> int:
        return self.us * 1000

    def correlation_id(self) -> int:
        return self.correlation

    def nbytes(self) -> int:
        return self.size


def test_busy_time_counts_what_overlaps_once() -> None:
    events = [Event("gemm", 0, 10), Event("gemm", 5, 10), Event("relu", 30, 4)]
    profile = summarise(events, steps=1, wall_us=100)
    assert (profile.busy_us, profile.kernels) == (19, 3)
    assert (profile.short_kernels, profile.short_us) == (1, 4)
    assert profile.top == (KernelUse("gemm", 2, 20), KernelUse("relu", 1, 4))


def test_launches_of_graphs_are_told_from_launches_of_kernels() -> None:
    host = [
        Event("cudaLaunchKernelExC", 0, 6, Device.CPU, 1),
        Event("cudaGraphLaunch", 10, 9, Device.CPU, 2),
        Event("cudaStreamSynchronize", 20, 40, Device.CPU, 3),
        Event("aten::relu", 0, 8, Device.CPU, 4),
    ]
    device = [Event("gemm", 5, 3, correlation=1), *[Event("relu", 20, 3, correlation=2)] * 3]
    profile = summarise(host + device, steps=1, wall_us=100)
    assert (profile.launches, profile.graph_launches, profile.launch_us) == (2, 1, 15)
    assert (profile.waits, profile.wait_us) == (1, 40)
    assert {use.name: use.in_graphs for use in profile.top} == {"relu": 3, "gemm": 0}


def test_copies_across_the_link_are_no_kernels_and_our_own_ranges_are_nothing() -> None:
    events = [
        Event("Memcpy HtoD (Pageable -> Device)", 0, 10, size=4096),
        Event("Memcpy DtoD (Device -> Device)", 20, 10, size=999),
        Event("Memset (Device)", 40, 1),
        Event("step Model", 0, 1000),
    ]
    profile = summarise(events, steps=1, wall_us=1000)
    assert (profile.copy_us, profile.copy_bytes, profile.kernels) == (10, 4096, 0)
    assert profile.busy_us == 21
