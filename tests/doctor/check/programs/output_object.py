"""A dataclass with None comes out (sglang#31852)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


@dataclass
class Out:
    logits: Tensor
    cache: Tensor | None = None


def step(x: Tensor) -> Out:
    return Out(logits=x.log_softmax(-1))


def example(device: str) -> object:
    return step, torch.randn(2, 8, device=device)
