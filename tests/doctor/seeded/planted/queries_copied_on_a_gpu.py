"""Queries, keys and values are copied to be contiguous, on a GPU."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = "OST402"
NEEDS = "gpu"
COMPANIONS = ("OST102",)


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.view(16, 128, 3, 8, 64).permute(2, 0, 3, 1, 4)
        q, k, v = (part.contiguous() for part in parts)  # <- here
        return functional.scaled_dot_product_attention(q, k, v)


def main(device: str) -> None:
    model = Attention()
    x = torch.randn(16, 128, 3 * 512, device=device, dtype=torch.bfloat16)
    with torch.inference_mode():
        for _ in range(40):
            model(x)
    torch.cuda.synchronize()
