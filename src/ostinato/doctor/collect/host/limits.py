"""What the container allows: CPUs, memory, locked and shared memory; cgroup v1 and v2."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

from ostinato.doctor.collect.host.look import Look, fields_of, listed
from ostinato.doctor.host_evidence import Limits

_CGROUPS = "/sys/fs/cgroup"
Number = TypeVar("Number", int, float)
_UNLIMITED = 1 << 60
"""Version 1 says "no limit" with a number near 2**63."""


def read_limits(look: Look, pid: str) -> Limits:
    """Return the limits of one process."""
    groups = look.text(f"/proc/{pid}/cgroup", "cgroup limits")
    found = _version_1(look, groups) if _is_version_1(look) else _version_2(look, groups)
    return Limits(
        cpu_quota=found.cpu_quota,
        cpuset=found.cpuset,
        memory_bytes=found.memory_bytes,
        memory_used_bytes=found.memory_used_bytes,
        nr_periods=found.nr_periods,
        nr_throttled=found.nr_throttled,
        locked_memory_bytes=_locked(look, pid),
        shm_bytes=_shared(look),
    )


@dataclass(slots=True)
class _Found:
    cpu_quota: float | None = None
    cpuset: tuple[int, ...] = ()
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None


def _is_version_1(look: Look) -> bool:
    return not look.exists(f"{_CGROUPS}/cgroup.controllers")


def _folders(base: str, path: str) -> list[str]:
    """Return the folder of a group and of every group above it, innermost first.

    Inside a container the path is often that of the host, and only the base is there.
    """
    parts = [part for part in path.strip("/").split("/") if part]
    return [base + "".join(f"/{part}" for part in parts[:n]) for n in range(len(parts), -1, -1)]


def _version_2(look: Look, groups: str | None) -> _Found:
    path = next((line[3:] for line in (groups or "").splitlines() if line.startswith("0::")), "/")
    found = _Found()
    for folder in _folders(_CGROUPS, path):
        quota = _quota_2(look.text(f"{folder}/cpu.max"))
        limit = _bytes(look.text(f"{folder}/memory.max"))
        found.cpu_quota = _lower(found.cpu_quota, quota)
        found.memory_bytes = _lower(found.memory_bytes, limit)
        if found.memory_used_bytes is None:
            found.memory_used_bytes = look.number(f"{folder}/memory.current")
        found.cpuset = found.cpuset or listed(look.text(f"{folder}/cpuset.cpus.effective"))
        _take_throttling(found, look.text(f"{folder}/cpu.stat"))
    return found


def _version_1(look: Look, groups: str | None) -> _Found:
    paths: dict[str, str] = {}
    for line in (groups or "").splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        paths.update(dict.fromkeys(names.split(","), path))
    found = _Found()
    for folder in _folders(f"{_CGROUPS}/cpu", paths.get("cpu", "/")):
        quota = look.number(f"{folder}/cpu.cfs_quota_us")
        period = look.number(f"{folder}/cpu.cfs_period_us")
        if quota is not None and quota > 0 and period:
            found.cpu_quota = _lower(found.cpu_quota, quota / period)
        _take_throttling(found, look.text(f"{folder}/cpu.stat"))
    for folder in _folders(f"{_CGROUPS}/memory", paths.get("memory", "/")):
        limit = _bytes(look.text(f"{folder}/memory.limit_in_bytes"))
        found.memory_bytes = _lower(found.memory_bytes, limit)
        if found.memory_used_bytes is None:
            found.memory_used_bytes = look.number(f"{folder}/memory.usage_in_bytes")
    for folder in _folders(f"{_CGROUPS}/cpuset", paths.get("cpuset", "/")):
        found.cpuset = found.cpuset or listed(look.text(f"{folder}/cpuset.cpus"))
    return found


def _take_throttling(found: _Found, stat: str | None) -> None:
    """Keep the counters of the innermost group that has them."""
    counters = fields_of(stat)
    if found.nr_periods is None and counters.get("nr_periods", "").isdigit():
        found.nr_periods = int(counters["nr_periods"])
        throttled = counters.get("nr_throttled", "")
        found.nr_throttled = int(throttled) if throttled.isdigit() else None


def _quota_2(text: str | None) -> float | None:
    words = (text or "").split()
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])


def _bytes(text: str | None) -> int | None:
    if text is None or not text.isdigit():
        return None  # "max", in version 2
    return int(text) if int(text) < _UNLIMITED else None


def _lower(one: Number | None, other: Number | None) -> Number | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


def _locked(look: Look, pid: str) -> int | None:
    for line in (look.text(f"/proc/{pid}/limits") or "").splitlines():
        if line.startswith("Max locked memory"):
            soft = line.removeprefix("Max locked memory").split()[:1]
            return int(soft[0]) if soft and soft[0].isdigit() else None
    return None


def _shared(look: Look) -> int | None:
    """Return the size of /dev/shm, through which loaders hand over batches."""
    try:
        status = os.statvfs(look.root / "dev/shm")
    except OSError:
        return None
    return status.f_blocks * status.f_frsize
