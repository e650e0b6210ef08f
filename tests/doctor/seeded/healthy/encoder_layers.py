"""A small encoder, as it comes."""

import torch
from torch import nn


def main(device: str) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(device).eval()
    with torch.inference_mode():
        for _ in range(20):
            model(torch.ones(2, 16, 32, device=device))
