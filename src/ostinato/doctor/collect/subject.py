"""What is watched, and on which machine."""

from __future__ import annotations

from functools import cache

import torch

from ostinato.device import Machine, default_device, describe
from ostinato.doctor.collect.gpu_use import has_gpu, uses_gpu
from ostinato.doctor.evidence import Subject


def describe_subject(title: str, seconds: float) -> Subject:
    """Return the facts of this process and its machine."""
    machine = _machine(default_device() if uses_gpu() else torch.device("cpu"))
    gpu = machine.accelerator
    return Subject(
        title=title,
        device="cuda" if has_gpu() else "cpu",
        accelerator=gpu.name if gpu else "",
        capability=gpu.capability if gpu else "",
        cpu=machine.cpu,
        cores=machine.cores,
        torch=machine.torch,
        python=machine.python,
        seconds=seconds,
    )


@cache
def _machine(device: torch.device) -> Machine:
    """Return what does not change: to find it out takes as long as all the rest of a save."""
    return describe(device)
