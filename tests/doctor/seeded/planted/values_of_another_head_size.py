"""Values have another head size than queries, and no fused kernel takes that."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = "OST401"


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, q, v)  # <- here


def main(device: str) -> None:
    model = Attention().to(device)
    q, v = torch.randn(1, 2, 128, 32, device=device), torch.randn(1, 2, 128, 24, device=device)
    with torch.inference_mode():
        for _ in range(12):
            model(q, v)
