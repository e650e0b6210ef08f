"""A convolution on first use (pytorch#87794, mstar#55)."""

from __future__ import annotations

import torch
from torch import nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def example(device: str) -> object:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).to(device)
    return layers.eval(), torch.randn(1, 3, 8, 8, device=device)
