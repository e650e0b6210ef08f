"""One shape, recorded and replayed."""

import torch
from torch import nn

from ostinato import graphed


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(12)]).to(device).eval()
    step = graphed(model)
    with torch.inference_mode():
        for _ in range(120):
            step(torch.ones(2, 16, device=device))
