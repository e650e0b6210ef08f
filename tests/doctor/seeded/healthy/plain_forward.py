"""A model in a loop, and its result read once at the end."""

import torch
from torch import nn


def main(device: str) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to(device).eval()
    with torch.inference_mode():
        for _ in range(40):
            y = model(torch.ones(4, 32, device=device))
        y.tolist()
