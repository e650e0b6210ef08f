"""A print that was forgotten reads the whole tensor."""

import contextlib
import io

import torch
from torch import nn

EXPECT = "OST101"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        print("activations", y)  # noqa: T201 <- here
        return y


def main(device: str) -> None:
    model = Model().to(device).eval()
    with torch.inference_mode(), contextlib.redirect_stdout(io.StringIO()):
        for _ in range(20):
            model(torch.ones(2, 8, device=device))
