"""Autocast, with its cache, is entered inside of what is recorded."""

import torch
from torch import nn

from ostinato import graphed

EXPECT = "OST205"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):  # <- here
            return self.layer(x)


def main(device: str) -> None:
    step = graphed(Model().to(device).eval())
    with torch.inference_mode():
        for _ in range(12):
            step(torch.ones(2, 16, device=device))
