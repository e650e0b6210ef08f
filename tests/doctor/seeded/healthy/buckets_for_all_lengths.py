"""All lengths, padded to a few sizes."""

import torch
from torch import nn

from ostinato import Buckets, graphed


def main(device: str) -> None:
    layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(12)]).to(device).eval()

    def run(x: torch.Tensor) -> torch.Tensor:
        return layers(x)

    step = graphed(run, buckets={"x": Buckets(0, (16, 32, 48))}, admit_after=1)
    with torch.inference_mode():
        for call in range(120):
            step(torch.ones(1 + call * 7 % 48, 16, device=device))
