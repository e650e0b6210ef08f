"""What machine this is: read-only facts for the head of a benchmark and of a report.

Numbers without their machine say nothing, so whatever prints a time prints these first. torch is
imported only when it is asked about, so that this module can be imported where torch is not wanted.
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU.

    Attributes:
        capability: Compute capability, such as "9.0".
        driver: Version of the installed driver, or None where it cannot be asked.
        cuda: Version of CUDA that torch was built with.
    """

    name: str
    memory_bytes: int
    sm_count: int
    capability: str
    driver: str | None
    cuda: str | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a number was measured.

    Attributes:
        cores: CPU cores that this process may use.
        threads: Threads that torch uses for one CPU operation.
        accelerator: The GPU in question, or None on a CPU.
    """

    cpu: str
    cores: int
    threads: int
    memory_bytes: int
    python: str
    torch: str
    accelerator: Accelerator | None

    def to_dict(self) -> dict[str, object]:
        """Return the facts as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        where = self.accelerator.name if self.accelerator else self.cpu
        return f"{where}, {self.cores} cores, torch {self.torch}, Python {self.python}"


def default_device() -> torch.device:
    """Return the device a run uses when nobody names one: the current GPU, else the CPU."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def describe(device: torch.device | str | None = None) -> Machine:
    """Return the facts of this machine, with those of the GPU that `device` names.

    Args:
        device: Where the measured work runs; None is `default_device()`.
    """
    import torch

    chosen = default_device() if device is None else torch.device(device)
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        threads=torch.get_num_threads(),
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        torch=version("torch"),
        accelerator=_accelerator(chosen) if chosen.type == "cuda" else None,
    )


def _cpu_model() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _accelerator(device: torch.device) -> Accelerator:
    import torch

    facts = torch.cuda.get_device_properties(device)
    return Accelerator(
        name=facts.name,
        memory_bytes=facts.total_memory,
        sm_count=facts.multi_processor_count,
        capability=f"{facts.major}.{facts.minor}",
        driver=_driver_version(),
        cuda=torch.version.cuda,
    )


def _driver_version() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # a container may hold the GPU without the management library
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()
