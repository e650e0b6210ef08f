"""Rows picked by an index tensor (sglang#24401, #10892)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def step(table: Tensor, rows: Tensor) -> Tensor:
    picked = table[rows]
    return picked / picked.norm(dim=-1, keepdim=True)


def example(device: str) -> object:
    return step, (torch.randn(9, 4, device=device), torch.tensor([1, 0, 8], device=device))
