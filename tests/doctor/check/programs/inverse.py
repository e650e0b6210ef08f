"""An inverse: torch reads on the host whether it succeeded."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

EXPECTED = Expected(("host-sync", "capture-error"), raw=False, tape="")


def step(x: Tensor) -> Tensor:
    return torch.linalg.inv(x) @ x  # in the way


def example(device: str) -> object:
    return step, torch.eye(3, device=device)
