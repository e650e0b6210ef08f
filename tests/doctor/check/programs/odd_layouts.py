"""Transposed and expanded inputs (torchdynamo#1031)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def step(x: Tensor, y: Tensor) -> Tensor:
    return (x + y).contiguous().view(-1)


def example(device: str) -> object:
    x = torch.randn(8, 4, device=device).t()
    return step, (x, torch.randn(1, 8, device=device).expand(4, 8))
