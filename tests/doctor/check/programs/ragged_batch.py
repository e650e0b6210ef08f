"""Rows repeated as often as a tensor says."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("data-dependent-shape",), raw=False, assumed=True)


def step(x: Tensor, counts: Tensor) -> Tensor:
    rows = x.repeat_interleave(counts, dim=0)  # in the way
    kept = torch.nonzero(rows[:, 0])  # in the way
    return rows[kept.squeeze(-1)].sum()


def example(device: str) -> object:
    return step, (torch.ones(3, 2, device=device), torch.tensor([1, 2, 1], device=device))
