"""A generator of the device itself (pytorch#91950): registered, it replays."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(raw=False)


class Noisy:
    def __init__(self, device: str) -> None:
        self.generator = torch.Generator(device=device)

    def __call__(self, x: Tensor) -> Tensor:
        return x + torch.rand(x.shape, generator=self.generator, device=x.device)


def example(device: str) -> object:
    return Noisy(device), torch.randn(4, device=device)
