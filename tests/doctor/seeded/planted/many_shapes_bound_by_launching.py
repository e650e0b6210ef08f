"""Shapes vary, nothing is recorded, and the host launches all the time."""

import torch
from torch import nn

EXPECT = "OST102"
NEEDS = "gpu"


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(60)]).to(device).eval()
    with torch.inference_mode():
        for call in range(60):
            y = model(torch.ones(1 + call, 64, device=device))
        y.cpu()
