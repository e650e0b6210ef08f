"""A forward that stores an activation (pytorch#114844)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("python-side-effect",))


class Stores(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.last = x * 2  # in the way
        return x + 1


def example(device: str) -> object:
    return Stores(), torch.randn(3, device=device)
