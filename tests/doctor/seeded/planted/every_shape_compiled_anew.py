"""Static shapes are compiled for every number of rows."""

import torch
from torch import nn

EXPECT = "OST302"


def main(device: str) -> None:
    model = nn.Linear(8, 8).to(device).eval()
    step = torch.compile(model, backend="eager", dynamic=False)
    with torch.inference_mode():
        for rows in range(2, 8):
            step(torch.ones(rows, 8, device=device))
