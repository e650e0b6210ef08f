"""The whole device is waited for in the middle of every step."""

import torch
from torch import nn

EXPECT = "OST101"
NEEDS = "gpu"
COMPANIONS = ("OST102", "OST201")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            torch.cuda.synchronize()  # <- here
        return x


def main(device: str) -> None:
    model = Model().to(device).eval()
    with torch.inference_mode():
        for _ in range(60):
            model(torch.ones(64, 64, device=device))
