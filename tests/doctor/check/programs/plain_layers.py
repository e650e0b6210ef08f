"""Layers alone: what a first result that is kept comes from (pytorch#170604)."""

from __future__ import annotations

import torch
from torch import nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def example(device: str) -> object:
    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).to(device)
    return layers.eval(), (torch.randn(4, 8, device=device),)
