"""The second shape makes a dynamic graph, and it stays."""

import torch
from torch import nn


def main(device: str) -> None:
    model = nn.Linear(8, 8).to(device).eval()
    step = torch.compile(model, backend="eager")
    with torch.inference_mode():
        for rows in range(2, 20):
            step(torch.ones(rows, 8, device=device))
