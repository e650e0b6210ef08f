"""A branch on the value of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("host-sync",), raw=False, assumed=True)


def step(x: Tensor) -> Tensor:
    if x.sum() > 0:  # in the way
        return x * 2
    print(x.mean())  # noqa: T201 - in the way
    return x - 1


def example(device: str) -> object:
    return step, torch.ones(4, device=device)
