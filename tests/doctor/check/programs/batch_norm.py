"""BatchNorm in train mode writes its buffers (LibreYOLO#671)."""

from __future__ import annotations

import torch
from torch import nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def example(device: str) -> object:
    norm = nn.BatchNorm2d(3).to(device).train()
    return norm, torch.randn(2, 3, 4, 4, device=device)
