"""A branch asks a tensor for its truth in every forward."""

import torch
from torch import nn

EXPECT = "OST101"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if (y > 100).any():  # <- here
            y = y.clamp(max=100)
        return y


def main(device: str) -> None:
    model = Model().to(device).eval()
    with torch.inference_mode():
        for _ in range(40):
            model(torch.ones(4, 32, device=device))
