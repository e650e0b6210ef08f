"""A number made on the device from Python (pytorch#171894)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("host-copy", "host-sync"), raw=False, tape="")


def step(x: Tensor) -> Tensor:
    return x * torch.tensor(3.0, device=x.device)  # in the way


def example(device: str) -> object:
    return step, torch.randn(4, device=device)
