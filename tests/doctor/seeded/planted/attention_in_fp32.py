"""Attention in fp32 under a rule that allows math alone."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

EXPECT = "OST401"
NEEDS = "gpu"


class Attention(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, q, q)  # <- here


def main(device: str) -> None:
    model = Attention()
    q = torch.randn(4, 8, 512, 64, device=device)
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        for _ in range(20):
            model(q)
    torch.cuda.synchronize()
