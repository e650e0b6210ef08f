"""A token that is read, three times in a row."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("host-sync",), raw=False, assumed=True)


def step(logits: Tensor, table: Tensor) -> Tensor:
    token = logits.argmax().item()  # in the way
    row = table[int(token)]
    best = float(row.max())  # in the way
    names = row.tolist()  # in the way
    return row * best + len(names)


def example(device: str) -> object:
    return step, (torch.randn(5, device=device), torch.randn(5, 3, device=device))
