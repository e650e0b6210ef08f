"""A forward that indexes by a boolean mask (pytorch#78549)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("data-dependent-shape",), raw=False, assumed=True)


def step(x: Tensor) -> Tensor:
    return x[x > 0] * 2  # in the way


def example(device: str) -> object:
    return step, torch.randn(8, device=device)
