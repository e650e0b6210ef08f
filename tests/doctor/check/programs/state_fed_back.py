"""Keys and values handed in and returned longer (pytorch#152887, #175557)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def step(token: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    grown = torch.cat((past, token), dim=1)
    return (grown * 0.5).sum(1), grown


def example(device: str) -> object:
    return step, (torch.randn(2, 1, 4, device=device), torch.randn(2, 3, 4, device=device))
