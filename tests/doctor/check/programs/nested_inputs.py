"""A list of (args, kwargs) goes in (torchtitan#4432)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


def step(batches: list[tuple[tuple[Tensor, ...], dict[str, Tensor | None]]]) -> Tensor:
    total = batches[0][0][0].new_zeros(4)
    for (x,), named in batches:
        scale = named["scale"]
        total = total + (x if scale is None else x * scale)
    return total


def example(device: str) -> object:
    x = torch.randn(4, device=device)
    return step, ([((x,), {"scale": None}), ((x + 1,), {"scale": x})],)
