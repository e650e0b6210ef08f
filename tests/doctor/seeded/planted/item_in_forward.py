"""A value is read in the middle of every forward."""

import torch
from torch import nn

EXPECT = "OST101"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().max().item()  # <- here
        return self.layer(x) / max(scale, 1.0)


def main(device: str) -> None:
    model = Model().to(device).eval()
    x = torch.randn(4, 32, device=device)
    with torch.inference_mode():
        for _ in range(40):
            x = model(x)
