"""A result that is a detached view of an intermediate (pytorch#104435)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def step(x: Tensor) -> Tensor:
    hidden = x.softmax(-1)
    return hidden[:, 1:].detach()


def example(device: str) -> object:
    return step, torch.randn(4, 8, device=device)
