"""The model counts its calls, so it can never be recorded."""

import torch
from torch import nn

from ostinato import graphed

EXPECT = "OST206"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x)


def main(device: str) -> None:
    step = graphed(Model().to(device).eval())
    with torch.inference_mode():
        for _ in range(110):
            step(torch.ones(2, 16, device=device))
