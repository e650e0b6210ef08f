"""Compute threads against the CPUs that they may use, and how long they stood ready without one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ostinato.doctor.collect.sampler import Sampler
from ostinato.doctor.interpreter_use import ThreadPools

_COUNT_EVERY = 256  # looks
_BUSY_S = 0.2
_CGROUP = Path("/sys/fs/cgroup")


class Threads:
    """Counts threads and processes while somebody watches."""

    name = "threads"

    def __init__(self, sampler: Sampler | None) -> None:
        self._sampler = sampler
        self._before: dict[str, tuple[int, int]] = {}
        self._cpu_before: dict[str, int] = {}
        self._processes = 1
        self._torch_threads = 1
        self._looks = 0

    def start(self) -> None:
        """Note where the counters stand."""
        self._before = _schedstats()
        self._cpu_before = _cpu_stat()
        self._torch_threads = torch.get_num_threads()
        if self._sampler is not None:
            self._sampler.listeners.append(self._look)

    def stop(self) -> None:
        """Take a last look."""
        self._count()

    def _look(self, *_: object) -> None:
        self._looks += 1
        self._torch_threads = max(self._torch_threads, torch.get_num_threads())
        if self._looks % _COUNT_EVERY == 0:
            self._count()

    def _count(self) -> None:
        self._torch_threads = max(self._torch_threads, torch.get_num_threads())
        computing = sum(1 for child in _children() if _computes(child))
        self._processes = max(self._processes, 1 + computing)

    def fields(self) -> dict[str, Any]:
        """Return the pools, the CPUs, and what the kernel says of waiting for one."""
        pools = ThreadPools(
            cpus=allowed_cpus(),
            torch_threads=self._torch_threads,
            interop_threads=torch.get_num_interop_threads(),
            processes=self._processes,
            python_threads=max(1, self._sampler.most_running if self._sampler else 1),
            runnable_share=self._runnable_share(),
            throttled_share=self._throttled_share(),
        )
        return {"threads": pools}

    def _runnable_share(self) -> float | None:
        ran = ready = 0
        for task, (now_ran, now_ready) in _schedstats().items():
            was_ran, was_ready = self._before.get(task, (0, 0))
            ran += now_ran - was_ran
            ready += now_ready - was_ready
        return ready / ran if ran > 0 else None

    def _throttled_share(self) -> float | None:
        now = _cpu_stat()
        periods = now.get("nr_periods", 0) - self._cpu_before.get("nr_periods", 0)
        throttled = now.get("nr_throttled", 0) - self._cpu_before.get("nr_throttled", 0)
        return throttled / periods if periods > 0 else None


def allowed_cpus() -> float:
    """Return the CPUs that the affinity and the cgroup's quota allow."""
    cpus = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):  # no such limit, or another kind of cgroup
        return cpus
    return cpus if quota == "max" else min(cpus, int(quota) / int(period))


def _children() -> list[str]:
    """Return the processes that this one started; a look at all of the machine's takes too long."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except OSError:  # the thread has ended, or this kernel does not tell
            continue
    return found


def _computes(child: str) -> bool:
    """Whether a process is a Python that has computed for a while."""
    try:
        name, _, words = Path(f"/proc/{child}/stat").read_text().rpartition(")")
        user, system = words.split()[11:13]
    except (OSError, ValueError):  # it has ended
        return False
    return "python" in name and int(user) + int(system) > _BUSY_S * os.sysconf("SC_CLK_TCK")


def _schedstats() -> dict[str, tuple[int, int]]:
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            words = (task / "schedstat").read_text().split()
            found[task.name] = (int(words[0]), int(words[1]))
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
    return found


def _cpu_stat() -> dict[str, int]:
    try:
        lines = (_CGROUP / "cpu.stat").read_text().splitlines()
        return {name: int(count) for name, count in (line.split() for line in lines)}
    except (OSError, ValueError):  # no cgroup of this kind
        return {}
