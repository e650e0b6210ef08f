"""A forward that raises while it is recorded (pytorch#190348, #190308)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("capture-error",), raw=False)


def step(x: Tensor) -> Tensor:
    y = x * 2
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("not now")  # in the way
    return y + 1


def example(device: str) -> object:
    return step, torch.randn(4, device=device)
