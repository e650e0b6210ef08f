"""Cycles made in a step start the collector over a heap of many objects."""

import gc

import torch
from torch import nn

EXPECT = "OST504"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gc.collect()  # what enough garbage starts by itself, at a moment of its own choosing
        return self.layer(x)


def main(device: str) -> None:
    heap = [[{} for _ in range(100)] for _ in range(6000)]
    model = Model().to(device).eval()
    with torch.inference_mode():
        for _ in range(12):
            model(torch.ones(2, 8, device=device))
    del heap
