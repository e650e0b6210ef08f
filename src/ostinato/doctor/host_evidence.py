"""The machine under the program: CPUs, NUMA nodes, links, clocks, limits, in plain values.

Filled by the host collector (`ostinato doctor host`, and at the end of a watch). None means that it
could not be read, and `missing` says why.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node: its CPUs, memory, and how much of this process lies on it.

    Attributes:
        process_bytes: Pages of the watched process on it, from /proc/<pid>/numa_maps; None where
            that could not be read.
    """

    node: int
    cpus: tuple[int, ...]
    memory_bytes: int = 0
    free_bytes: int = 0
    process_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A PCIe link.

    Attributes:
        generation, width: While a copy was running (`under_load`), else as it idled.
        max_generation, max_width: The lower of what the GPU and its upstream port can do.
        h2d_gbs, d2h_gbs: Measured with pinned memory; None where nobody measured.
        upstream: The bridge above it where that one is narrower, else empty.
        replays: The counter of packets sent again, and by how much it grew under load.
    """

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    under_load: bool = False
    h2d_gbs: float | None = None
    d2h_gbs: float | None = None
    upstream: str = ""
    replays: int | None = None
    replays_under_load: int | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of a GPU, under load where `under_load`.

    Attributes:
        reasons: NVML's active reasons, such as "sw_power_cap", "hw_thermal_slowdown"; "gpu_idle"
            and "applications_clocks_setting" too.
        throttled_us: How long each reason held while it was watched, in the same order; empty where
            only one look was taken.
    """

    sm_mhz: int | None = None
    max_sm_mhz: int | None = None
    memory_mhz: int | None = None
    max_memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    reasons: tuple[str, ...] = ()
    throttled_us: tuple[float, ...] = ()
    watched_us: float = 0.0
    under_load: bool = False


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has a context on the GPU; `ours` the watched one and its children."""

    pid: int
    name: str
    memory_bytes: int = 0
    ours: bool = False
    busy_share: float | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of the machine."""

    index: int
    name: str
    bus_id: str = ""
    numa_node: int | None = None
    link: Link | None = None
    clocks: Clocks | None = None
    processes: tuple[GpuProcess, ...] = ()
    mps: bool | None = None
    mig: bool | None = None
    compute_mode: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Switching:
    """Latency against context switches, over equal windows.

    Attributes:
        latency_us: Median step, or of a small fixed kernel, in each window.
        switches: Context switches of the GPU in that window where they can be counted, else other
            processes' share of its time in percent.
        host_switches: Involuntary context switches of the process's threads in that window.
    """

    latency_us: tuple[float, ...] = ()
    switches: tuple[float, ...] = ()
    host_switches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What the container allows."""

    cpu_quota: float | None = None
    cpuset: tuple[int, ...] = ()
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None
    locked_memory_bytes: int | None = None
    shm_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostEvidence:
    """All that is known of the machine.

    Attributes:
        process_cpus: CPUs that the process may run on; `ran_on` those its threads were seen on.
        container: "docker", "kubernetes", "podman", "lxc" or empty.
        huge_pages: The kernel's mode of transparent huge pages.
        missing: What could not be read and why, one sentence each.
    """

    cpu: str = ""
    sockets: int | None = None
    cores: int | None = None
    process_cpus: tuple[int, ...] = ()
    ran_on: tuple[int, ...] = ()
    nodes: tuple[NumaNode, ...] = ()
    numa_balancing: bool | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_used: int | None = None
    switching: Switching | None = None
    limits: Limits | None = None
    huge_pages: str = ""
    container: str = ""
    governor: str = ""
    kernel: str = ""
    driver: str = ""
    missing: tuple[str, ...] = ()
