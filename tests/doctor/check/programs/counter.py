"""A module that counts its calls and changes with them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("python-side-effect",))


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1  # in the way
        return x * self.calls


def example(device: str) -> object:
    return Counter(), torch.randn(3, device=device)
