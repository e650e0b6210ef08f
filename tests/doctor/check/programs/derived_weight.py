"""A weight that is rebuilt in each forward (vllm#48941, sglang#4961)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


class Derived(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t().contiguous()


def example(device: str) -> object:
    return Derived().to(device), torch.randn(2, 8, device=device)
