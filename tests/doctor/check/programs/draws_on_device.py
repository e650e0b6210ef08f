"""Sampling that stays on the device: multinomial, and a race of exponentials."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def step(logits: Tensor) -> tuple[Tensor, Tensor]:
    p = logits.softmax(-1)
    race = torch.empty_like(p).exponential_()
    return torch.multinomial(p, 1), (p / race).argmax(-1)


def example(device: str) -> object:
    return step, torch.randn(2, 9, device=device)
