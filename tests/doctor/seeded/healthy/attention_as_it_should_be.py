"""Attention over views, with a causal flag and no mask."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(rows, tokens, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def main(device: str) -> None:
    model = Attention().to(device, torch.bfloat16 if device == "cuda" else torch.float32).eval()
    like = next(model.parameters())
    with torch.inference_mode():
        for _ in range(12):
            model(torch.ones(2, 64, 64, device=device, dtype=like.dtype))
