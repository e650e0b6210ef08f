"""A table that is built on the host and copied in each time."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("host-copy", "several-devices", "host-sync"), raw=False, tape="")


def step(x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[-1])  # in the way
    return x + positions.to(x.device)  # in the way


def example(device: str) -> object:
    return step, torch.randn(2, 8, device=device)
