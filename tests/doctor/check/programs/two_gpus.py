"""A forward that spans two GPUs (pytorch#153025)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("several-devices",), raw=False, tape="", gpus=2)


class Split(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8).to(f"{device}:0")
        self.second = nn.Linear(8, 8).to(f"{device}:1")

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        return self.second(hidden.to("cuda:1"))  # in the way


def example(device: str) -> object:
    return Split(device), torch.randn(4, 8, device=f"{device}:0")
