"""A block that switches autocast off inside of a recording is harmless."""

import torch
from torch import nn

from ostinato import graphed


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(12)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return self.layers(x.float()).softmax(-1)


def main(device: str) -> None:
    step = graphed(Model().to(device).eval())
    with torch.inference_mode():
        for _ in range(120):
            step(torch.ones(2, 16, device=device))
