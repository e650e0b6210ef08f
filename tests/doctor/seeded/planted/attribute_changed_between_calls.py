"""An attribute of the model is set anew before every few calls, so every recording is lost."""

import torch
from torch import nn

from ostinato import graphed

EXPECT = "OST203"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.scale = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


def main(device: str) -> None:
    model = Model().to(device).eval()
    step = graphed(model, admit_after=1)
    with torch.inference_mode():
        for call in range(40):
            model.scale = float(call // 4)
            step(torch.ones(2, 16, device=device))
