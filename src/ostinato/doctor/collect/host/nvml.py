"""The GPUs as NVML knows them: names, processes, clocks, throttle reasons, link.

NVML is the driver's own library and needs neither torch nor a CUDA context, so asking it disturbs
nothing. Every question may be refused (a container, an old driver, a virtual GPU): then that one
fact is missing and the rest is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from ostinato.doctor.collect.host.look import Look, fields_of
from ostinato.doctor.collect.host.pcie import read_link, read_numa_node
from ostinato.doctor.host_evidence import Clocks, Gpu, GpuProcess, Link

REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_SM, _MEMORY, _TEMPERATURE = 1, 2, 0
_MPS_SERVER = "nvidia-cuda-mps-server"


class Nvml:
    """NVML, asked one question at a time.

    Args:
        library: The module `pynvml`, or what answers like it.
    """

    def __init__(self, library: Any, look: Look) -> None:
        self._library = library
        self._look = look

    def ask(self, name: str, *args: Any, what: str = "") -> Any:
        """Return the answer; None where NVML refuses, noted as `what` where that is given."""
        question = getattr(self._library, name, None)
        if question is None:
            return None
        try:
            return question(*args)
        except self._library.NVMLError as error:
            if what:
                self._look.note(what, f"NVML says {error}")
            return None

    def handles(self) -> list[Any]:
        """Return one handle for each GPU."""
        count = self.ask("nvmlDeviceGetCount", what="GPUs") or 0
        found = [self.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        return [handle for handle in found if handle is not None]


@contextmanager
def opened_nvml(look: Look, library: Any = None) -> Iterator[Nvml | None]:
    """Open NVML for the block; None, with a note, where there is none."""
    if library is None:
        try:
            library = import_module("pynvml")
        except ImportError:
            look.note("GPUs", "the package nvidia-ml-py is not installed")
            yield None
            return
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        look.note("GPUs", f"NVML cannot be opened ({error}): no NVIDIA driver, or none in here")
        yield None
        return
    try:
        yield Nvml(library, look)
    finally:
        library.nvmlShutdown()


def read_gpus(look: Look, nvml: Nvml, pids: frozenset[int]) -> tuple[Gpu, ...]:
    """Return every GPU as it is now, idle or not.

    Args:
        pids: The watched process and its children.
    """
    driver = _text(nvml.ask("nvmlSystemGetDriverVersion"))
    handles = nvml.handles()
    return tuple(_gpu(look, nvml, handle, n, driver, pids) for n, handle in enumerate(handles))


def _gpu(look: Look, nvml: Nvml, handle: Any, index: int, driver: str, pids: frozenset[int]) -> Gpu:
    bus_id = _text(getattr(nvml.ask("nvmlDeviceGetPciInfo", handle), "busId", ""))
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle, what=f"the memory of GPU {index}")
    processes = _processes(look, nvml, handle, pids)
    mig = nvml.ask("nvmlDeviceGetMigMode", handle)
    return Gpu(
        index=index,
        name=_text(nvml.ask("nvmlDeviceGetName", handle)),
        bus_id=bus_id,
        numa_node=read_numa_node(look, bus_id),
        link=link_of(look, nvml, handle, bus_id),
        clocks=clocks_of(nvml, handle),
        processes=processes,
        mps=_has_mps(nvml, handle, processes),
        mig=None if mig is None else bool(mig[0]),
        compute_mode=_COMPUTE_MODES.get(nvml.ask("nvmlDeviceGetComputeMode", handle), ""),
        memory_bytes=int(getattr(memory, "total", 0)),
        used_bytes=int(getattr(memory, "used", 0)),
        driver=driver,
    )


def link_of(look: Look, nvml: Nvml, handle: Any, bus_id: str) -> Link | None:
    """Return the link: limits from /sys where they are lower, the present state from NVML."""
    present = Link(
        generation=nvml.ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        width=nvml.ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        max_generation=nvml.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        max_width=nvml.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        replays=nvml.ask("nvmlDeviceGetPcieReplayCounter", handle),
    )
    from_kernel = read_link(look, bus_id) if bus_id else None
    if from_kernel is None:
        return present if present.generation is not None else None
    return replace(
        present,
        generation=present.generation or from_kernel.generation,
        width=present.width or from_kernel.width,
        max_generation=_lower(present.max_generation, from_kernel.max_generation),
        max_width=_lower(present.max_width, from_kernel.max_width),
        upstream=from_kernel.upstream,
    )


def clocks_of(nvml: Nvml, handle: Any) -> Clocks:
    """Return the clocks now."""
    power = nvml.ask("nvmlDeviceGetPowerUsage", handle)
    limit = nvml.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    return Clocks(
        sm_mhz=nvml.ask("nvmlDeviceGetClockInfo", handle, _SM),
        max_sm_mhz=nvml.ask("nvmlDeviceGetMaxClockInfo", handle, _SM),
        memory_mhz=nvml.ask("nvmlDeviceGetClockInfo", handle, _MEMORY),
        max_memory_mhz=nvml.ask("nvmlDeviceGetMaxClockInfo", handle, _MEMORY),
        temperature_c=nvml.ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE),
        power_w=None if power is None else power / 1000,
        power_limit_w=None if limit is None else limit / 1000,
        reasons=reasons_of(nvml, handle),
    )


def reasons_of(nvml: Nvml, handle: Any) -> tuple[str, ...]:
    """Return why the clock is what it is."""
    bits = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None:
        bits = nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    return tuple(name for bit, name in REASONS.items() if (bits or 0) & bit)


def busy_shares(nvml: Nvml, handle: Any, since_us: int) -> dict[int, float]:
    """Return the share of the GPU's time that each process had since then."""
    samples = nvml.ask("nvmlDeviceGetProcessUtilization", handle, since_us) or ()
    shares: dict[int, list[float]] = {}
    for sample in samples:
        shares.setdefault(int(sample.pid), []).append(int(sample.smUtil) / 100)
    return {pid: round(sum(each) / len(each), 4) for pid, each in shares.items()}


def _processes(look: Look, nvml: Nvml, handle: Any, pids: frozenset[int]) -> tuple[GpuProcess, ...]:
    shares = busy_shares(nvml, handle, 0)
    found = {}
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        for process in nvml.ask(name, handle) or ():
            pid = int(process.pid)
            found[pid] = GpuProcess(
                pid=pid,
                name=_name(look, pid),
                memory_bytes=int(process.usedGpuMemory or 0),
                ours=pid in pids,
                busy_share=shares.get(pid),
            )
    return tuple(found[pid] for pid in sorted(found))


def _name(look: Look, pid: int) -> str:
    """Return the name of a process; empty where it is another container's."""
    return fields_of(look.text(f"/proc/{pid}/status")).get("Name", "")


def _has_mps(nvml: Nvml, handle: Any, processes: tuple[GpuProcess, ...]) -> bool:
    clients = nvml.ask("nvmlDeviceGetMPSComputeRunningProcesses", handle)
    # The kernel keeps fifteen characters of a name.
    named = any(_MPS_SERVER.startswith(each.name[:15]) and each.name for each in processes)
    return bool(clients) or named


def _lower(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
