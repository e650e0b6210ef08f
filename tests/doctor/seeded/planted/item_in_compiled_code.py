"""A value read to the host splits compiled code."""

import torch
from torch import nn

EXPECT = "OST301"
COMPANIONS = ("OST101",)


def norm(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().max().item()  # <- here
    return x / scale if scale > 1 else x


def main(device: str) -> None:
    layer = nn.Linear(8, 8).to(device).eval()
    step = torch.compile(norm, backend="eager")
    with torch.inference_mode():
        for _ in range(12):
            step(layer(torch.ones(2, 8, device=device)))
