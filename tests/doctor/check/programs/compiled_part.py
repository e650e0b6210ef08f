"""A compiled submodule inside (pytorch#156377, #171894)."""

from __future__ import annotations

import torch
from torch import nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def example(device: str) -> object:
    inner = nn.Linear(6, 6).to(device)
    compiled = torch.compile(inner, backend="aot_eager")
    return nn.Sequential(compiled, nn.GELU()).eval(), torch.randn(2, 6, device=device)
