"""A forward that enters autocast (pytorch#71631, #81558)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = self.linear(x)
        return y.float()


def example(device: str) -> object:
    return Mixed().to(device).eval(), torch.randn(2, 8, device=device)
