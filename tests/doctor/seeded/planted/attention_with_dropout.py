"""Dropout that was left on keeps attention from its fast kernel."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = "OST401"


class Attention(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1)  # <- here


def main(device: str) -> None:
    model = Attention().to(device)
    q = torch.randn(1, 2, 128, 32, device=device)
    with torch.inference_mode():
        for _ in range(12):
            model(q)
