"""A branch on a dtype under autocast: part of what is recorded, and in the way of nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = self.linear(x)
            if y.dtype is torch.bfloat16:
                y = y.float() + 1
        return y


def example(device: str) -> object:
    return Branches().to(device).eval(), torch.randn(2, 4, device=device)
