"""Ask every area about the machine, and put the answers into one `HostEvidence`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ostinato.doctor.collect.host.cpu import read_cpus
from ostinato.doctor.collect.host.driver_api import DriverRefused, working_on
from ostinato.doctor.collect.host.kernel import (
    read_container,
    read_driver,
    read_huge_pages,
    read_kernel,
)
from ostinato.doctor.collect.host.limits import read_limits
from ostinato.doctor.collect.host.load import BUFFER_BYTES, look_under_load
from ostinato.doctor.collect.host.look import Look
from ostinato.doctor.collect.host.numa import read_balancing, read_nodes
from ostinato.doctor.collect.host.nvml import Nvml, opened_nvml, read_gpus
from ostinato.doctor.collect.host.switches import windows_of_switches
from ostinato.doctor.host_evidence import Gpu, HostEvidence, Switching

_WINDOWS, _WINDOW_S = 10, 0.05


def collect_host(
    pid: int | None = None,
    *,
    root: Path = Path("/"),
    under_load: bool = False,
    nvml: Any = None,
) -> HostEvidence:
    """Return what can be known of the machine, and of one process on it. Never raises.

    Args:
        pid: The process; None means this one.
        root: Where /proc and /sys are; "/" on a live machine.
        under_load: Put work on each GPU for two seconds, which links and clocks need to be judged;
            and with `pid`, count its context switches for half a second.
        nvml: What answers like the module `pynvml`; None means that module.
    """
    look = Look(root)
    who = "self" if pid is None else str(pid)
    cpus = read_cpus(look, who)
    evidence = HostEvidence(
        cpu=cpus.cpu,
        sockets=cpus.sockets,
        cores=cpus.cores,
        process_cpus=cpus.process_cpus,
        ran_on=cpus.ran_on,
        governor=cpus.governor,
        nodes=read_nodes(look, who),
        numa_balancing=read_balancing(look),
        limits=read_limits(look, who),
        huge_pages=read_huge_pages(look),
        container=read_container(look),
        kernel=read_kernel(look),
        driver=read_driver(look),
    )
    evidence = _with_gpus(evidence, look, pid, under_load, nvml)
    if under_load and pid is not None and evidence.switching is None:
        counts = windows_of_switches(look, who, _WINDOWS, _WINDOW_S)
        evidence = replace(evidence, switching=Switching(host_switches=counts) if counts else None)
    return replace(evidence, missing=tuple(look.missing))


def _with_gpus(
    evidence: HostEvidence, look: Look, pid: int | None, under_load: bool, library: Any
) -> HostEvidence:
    pids = _family(look, os.getpid() if pid is None else pid)
    with opened_nvml(look, library) as nvml:
        if nvml is None:
            return evidence
        gpus = read_gpus(look, nvml, pids)
        switching = None
        if under_load:
            gpus, switching = _loaded(look, nvml, gpus)
    used = next((gpu.index for gpu in gpus if any(each.ours for each in gpu.processes)), None)
    driver = next((gpu.driver for gpu in gpus if gpu.driver), evidence.driver)
    return replace(evidence, gpus=gpus, gpu_used=used, switching=switching, driver=driver)


def _loaded(
    look: Look, nvml: Nvml, gpus: tuple[Gpu, ...]
) -> tuple[tuple[Gpu, ...], Switching | None]:
    seen: list[Gpu] = []
    switching: Switching | None = None
    for gpu, handle in zip(gpus, nvml.handles(), strict=False):
        try:
            with working_on(gpu.bus_id, BUFFER_BYTES) as worker:
                loaded = look_under_load(look, nvml, handle, gpu, worker)
        except DriverRefused as error:
            look.note(f"link and clocks of GPU {gpu.index} under load", str(error))
            seen.append(gpu)
            continue
        seen.append(loaded.gpu)
        switching = switching or loaded.switching
    return tuple(seen), switching


def _family(look: Look, pid: int) -> frozenset[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, int] = {}
    for name in look.names("/proc"):
        if name.isdigit():
            after = (look.text(f"/proc/{name}/stat") or "").rpartition(")")[2].split()
            if len(after) > 1 and after[1].isdigit():
                parents[int(name)] = int(after[1])
    family = {pid}
    while found := {child for child, parent in parents.items() if parent in family} - family:
        family |= found
    return frozenset(family)
