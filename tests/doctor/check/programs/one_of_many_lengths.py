"""One of many lengths (pytorch#196385, parler-tts#93): each is a fixed shape."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doctor.check.programs.expected import Expected

EXPECTED = Expected()


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).mean(1)


def example(device: str) -> object:
    return Pooled().to(device), torch.arange(17, device=device)[None]
