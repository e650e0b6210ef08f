"""A flag is part of the key, and takes two values."""

import torch
from torch import nn

from ostinato import graphed


def main(device: str) -> None:
    layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(12)]).to(device).eval()

    def run(x: torch.Tensor, double: bool) -> torch.Tensor:
        y = layers(x)
        return y * 2 if double else y

    step = graphed(run)
    with torch.inference_mode():
        for call in range(120):
            step(torch.ones(2, 16, device=device), call % 2 == 0)
