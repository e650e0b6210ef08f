"""An empty batch (tokenspeed#493, cudnn-frontend#404)."""

from __future__ import annotations

import torch
from torch import nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("empty-batch",), tape="empty-batch")


def example(device: str) -> object:
    return nn.Linear(4, 4).to(device), torch.empty(0, 4, device=device)
