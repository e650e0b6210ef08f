"""The same small step runs for ever, and nothing records it."""

import torch
from torch import nn

EXPECT = "OST201"
NEEDS = "gpu"
COMPANIONS = ("OST102",)


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(60)]).to(device).eval()
    x = torch.ones(8, 64, device=device)
    with torch.inference_mode():
        for _ in range(80):
            y = model(x)
        y.cpu()
