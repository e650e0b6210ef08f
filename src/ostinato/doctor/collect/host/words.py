"""The machine in words, a line for each thing; what is missing comes last. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ostinato.doctor.host_evidence import Gpu, HostEvidence, Limits, NumaNode
from ostinato.units import format_bytes


def as_text(host: HostEvidence) -> str:
    """Return the report on a machine."""
    rows = [*_machine(host), *(row for gpu in host.gpus for row in _gpu(gpu))]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {text}" for name, text in rows if text]
    if host.missing:
        lines += ["", "not known:", *(f"  {sentence}" for sentence in host.missing)]
    return "\n".join(lines) + "\n"


def _machine(host: HostEvidence) -> Iterator[tuple[str, str]]:
    yield (
        "cpu",
        _joined(
            host.cpu,
            _counted(host.sockets, "socket"),
            _counted(host.cores, "core"),
            f"governor {host.governor}" if host.governor else "",
        ),
    )
    yield (
        "process",
        _joined(
            f"may run on CPUs {ranges(host.process_cpus)}" if host.process_cpus else "",
            f"seen on {ranges(host.ran_on)}" if host.ran_on else "",
        ),
    )
    for node in host.nodes:
        yield f"numa node {node.node}", _node(node)
    if len(host.nodes) > 1 and host.numa_balancing is not None:
        yield "numa balancing", "on" if host.numa_balancing else "off"
    if host.limits is not None:
        yield "limits", _limits(host.limits)
    yield "container", host.container or "none seen"
    yield "huge pages", host.huge_pages
    yield "kernel", _joined(host.kernel, f"NVIDIA driver {host.driver}" if host.driver else "")
    if host.switching is not None and host.switching.host_switches:
        counts = host.switching.host_switches
        yield "switches", f"{sum(counts)} involuntary in {len(counts)} windows"
    if not host.gpus:
        yield "gpu", "none seen"


def _node(node: NumaNode) -> str:
    return _joined(
        f"CPUs {ranges(node.cpus)}" if node.cpus else "no CPUs",
        f"{format_bytes(node.memory_bytes)}, {format_bytes(node.free_bytes)} free",
        "" if node.process_bytes is None else f"{format_bytes(node.process_bytes)} of the process",
    )


def _limits(limits: Limits) -> str:
    memory = ""
    if limits.memory_bytes is not None:
        memory = f"{format_bytes(limits.memory_bytes)} of memory"
    throttled = ""
    if limits.nr_throttled and limits.nr_periods:
        throttled = f"throttled in {limits.nr_throttled} of {limits.nr_periods} periods"
    return _joined(
        f"{limits.cpu_quota:.1f} CPUs" if limits.cpu_quota is not None else "no CPU quota",
        throttled,
        memory or "no memory limit",
        f"/dev/shm {format_bytes(limits.shm_bytes)}" if limits.shm_bytes is not None else "",
        ""
        if limits.locked_memory_bytes is None
        else f"{format_bytes(limits.locked_memory_bytes)} may be locked",
    )


def _gpu(gpu: Gpu) -> Iterator[tuple[str, str]]:
    name = f"gpu {gpu.index}"
    node = "" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}"
    used = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.memory_bytes)} used"
    yield (
        name,
        _joined(gpu.name, gpu.bus_id, node, used, f"compute mode {gpu.compute_mode}", _modes(gpu)),
    )
    link = gpu.link
    if link is not None:
        rates = [
            f"{rate:.1f} GB/s {way}"
            for rate, way in ((link.h2d_gbs, "up"), (link.d2h_gbs, "down"))
            if rate is not None
        ]
        yield (
            f"{name} link",
            _joined(
                f"generation {link.generation or '?'} x{link.width or '?'} "
                f"of {link.max_generation or '?'} x{link.max_width or '?'}",
                "under load" if link.under_load else "at rest, where it says little",
                *rates,
                link.upstream,
                f"{link.replays} packets sent again so far" if link.replays else "",
            ),
        )
    clocks = gpu.clocks
    if clocks is not None and clocks.sm_mhz:
        yield (
            f"{name} clocks",
            _joined(
                f"{clocks.sm_mhz} of {clocks.max_sm_mhz or '?'} MHz",
                "under load" if clocks.under_load else "at rest",
                f"{clocks.temperature_c} degrees" if clocks.temperature_c is not None else "",
                f"{clocks.power_w:.0f} W" if clocks.power_w is not None else "",
                " and ".join(clocks.reasons),
            ),
        )
    for process in gpu.processes:
        whose = "this process" if process.ours else (process.name or "a process not seen from here")
        yield f"{name} process", f"{process.pid} {whose}, {format_bytes(process.memory_bytes)}"


def _modes(gpu: Gpu) -> str:
    modes = [word for word, is_on in (("MPS", gpu.mps), ("MIG", gpu.mig)) if is_on]
    return " and ".join(modes)


def ranges(numbers: tuple[int, ...]) -> str:
    """Return numbers as the kernel lists them: "0-3,8"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def _counted(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}" if number else ""


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
