"""A print splits compiled code in two."""

import contextlib
import io

import torch
from torch import nn

EXPECT = "OST301"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        print("half way")  # noqa: T201 <- here
        return y.relu()


def main(device: str) -> None:
    step = torch.compile(Model().to(device).eval(), backend="eager")
    with torch.inference_mode(), contextlib.redirect_stdout(io.StringIO()):
        for _ in range(12):
            step(torch.ones(2, 8, device=device))
