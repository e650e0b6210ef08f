"""Compiled code without breaks, for one shape."""

import torch
from torch import nn


def main(device: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).to(device).eval()
    step = torch.compile(model, backend="eager", fullgraph=True)
    with torch.inference_mode():
        for _ in range(20):
            step(torch.ones(2, 8, device=device))
