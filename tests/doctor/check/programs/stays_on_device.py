"""What the advice leads to: where, masked_fill, one_hot, a cache written in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

# On a CPU one_hot reads every value, to check it.
EXPECTED = Expected(tape="host-sync")


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 16, 4))
        self.cache: Tensor

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.cache.index_copy_(1, position, x)
        seen = torch.arange(16, device=x.device) <= position
        scores = (self.cache * x).sum(-1).masked_fill(~seen, float("-inf"))
        kind = nn.functional.one_hot(position, 16).float()
        return torch.where(scores > 0, scores, kind).softmax(-1)


def example(device: str) -> object:
    x = torch.randn(2, 1, 4, device=device)
    return Cached().to(device), (x, torch.tensor([3], device=device))
