"""A number that is pinned and copied inside (FlagGems#4472)."""

from __future__ import annotations

import torch
from torch import Tensor

from doctor.check.programs.expected import Expected

# A bare capture takes it, and its replays read whatever the pinned memory holds by then.
EXPECTED = Expected(("host-copy", "host-sync", "several-devices"), raw=True, tape="")


def step(x: Tensor) -> Tensor:
    n = torch.tensor([3.0]).pin_memory()  # in the way
    return x * n.to(x.device, non_blocking=True)  # in the way


def example(device: str) -> object:
    return step, torch.randn(4, device=device)
