"""A forward that waits for the device, to time itself."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("host-sync",), raw=False, tape="")


def step(x: Tensor) -> Tensor:
    y = x @ x
    torch.cuda.synchronize()  # in the way
    return y


def example(device: str) -> object:
    return step, torch.randn(4, 4, device=device)
