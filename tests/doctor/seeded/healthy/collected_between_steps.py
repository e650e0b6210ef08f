"""The collector runs between steps, over a frozen heap."""

import gc

import torch
from torch import nn


def main(device: str) -> None:
    model = nn.Linear(8, 8).to(device).eval()
    gc.collect()
    gc.freeze()
    with torch.inference_mode():
        for _ in range(12):
            model(torch.ones(2, 8, device=device))
            gc.collect()
    gc.unfreeze()
