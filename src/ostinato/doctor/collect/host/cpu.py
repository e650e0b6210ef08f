"""The CPUs: which, how many, where the process may run and where it was seen."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.doctor.collect.host.look import Look, fields_of, listed

_PROCESSOR = 36
"""Of the fields after the name in /proc/<pid>/task/<tid>/stat: the CPU that it ran on last."""


@dataclass(frozen=True, slots=True)
class Cpus:
    """What is known of the CPUs; see `HostEvidence` for the names."""

    cpu: str
    sockets: int | None
    cores: int | None
    process_cpus: tuple[int, ...]
    ran_on: tuple[int, ...]
    governor: str


def read_cpus(look: Look, pid: str) -> Cpus:
    """Look at the CPUs, and at one process on them."""
    info = look.text("/proc/cpuinfo", "which CPU it is")
    sockets, cores = _topology(look)
    status = fields_of(look.text(f"/proc/{pid}/status", f"on which CPUs process {pid} may run"))
    return Cpus(
        cpu=_model(info),
        sockets=sockets,
        cores=cores,
        process_cpus=listed(status.get("Cpus_allowed_list")),
        ran_on=_ran_on(look, pid),
        governor=_governor(look),
    )


def _model(info: str | None) -> str:
    found = fields_of(info)
    names = ("model name", "Model", "Hardware", "cpu model")
    return next((found[name] for name in names if found.get(name)), "")


def _topology(look: Look) -> tuple[int | None, int | None]:
    """Count packages, and physical cores in them."""
    folder = "/sys/devices/system/cpu"
    places = set()
    for name in look.names(folder):
        if name.startswith("cpu") and name[3:].isdigit():
            package = look.text(f"{folder}/{name}/topology/physical_package_id")
            core = look.text(f"{folder}/{name}/topology/core_id")
            if package is not None and core is not None:
                places.add((package, core))
    if not places:
        look.note("sockets and cores", f"{folder}/cpu*/topology cannot be read")
        return None, None
    return len({package for package, _ in places}), len(places)


def _ran_on(look: Look, pid: str) -> tuple[int, ...]:
    seen = set()
    for task in look.names(f"/proc/{pid}/task"):
        text = look.text(f"/proc/{pid}/task/{task}/stat")
        # The name stands in parentheses and may hold spaces and parentheses itself.
        after = (text or "").rpartition(")")[2].split()
        if len(after) > _PROCESSOR and after[_PROCESSOR].isdigit():
            seen.add(int(after[_PROCESSOR]))
    return tuple(sorted(seen))


def _governor(look: Look) -> str:
    folder = "/sys/devices/system/cpu/cpufreq"
    words = {look.text(f"{folder}/{name}/scaling_governor") for name in look.names(folder)}
    return ", ".join(sorted(word for word in words if word))
