"""What is watched, and on which machine."""

from __future__ import annotations

import torch

from ostinato import device
from ostinato.doctor.evidence import Subject


def describe_subject(title: str, seconds: float) -> Subject:
    """Return the facts of this process and its machine."""
    machine = device.describe()
    gpu = machine.accelerator
    return Subject(
        title=title,
        device="cuda" if torch.cuda.is_available() else "cpu",
        accelerator=gpu.name if gpu else "",
        capability=gpu.capability if gpu else "",
        cpu=machine.cpu,
        cores=machine.cores,
        torch=machine.torch,
        python=machine.python,
        seconds=seconds,
    )
