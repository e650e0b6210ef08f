"""The device sets the pace."""

import torch
from torch import nn

NEEDS = "gpu"


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(6)]).to(device).eval()
    x = torch.ones(4096, 4096, device=device)
    with torch.inference_mode():
        for _ in range(40):
            y = model(x)
        y[0].cpu()
