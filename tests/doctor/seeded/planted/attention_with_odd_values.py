"""Values of another head size leave math alone on a GPU."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = "OST401"
NEEDS = "gpu"


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, q, v)  # <- here


def main(device: str) -> None:
    model = Attention()
    q = torch.randn(4, 8, 512, 68, device=device)
    v = torch.randn(4, 8, 512, 33, device=device)
    with torch.inference_mode():
        for _ in range(20):
            model(q, v)
    torch.cuda.synchronize()
