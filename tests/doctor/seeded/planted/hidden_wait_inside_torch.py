"""An operation waits inside of torch, where no Python function shows it."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = "OST101"
NEEDS = "gpu"
COMPANIONS = ("OST102", "OST201")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        chosen = functional.one_hot(tokens)  # <- here
        return self.layer(chosen.float())


def main(device: str) -> None:
    model = Model().to(device).eval()
    tokens = torch.arange(64, device=device)
    with torch.inference_mode():
        for _ in range(60):
            y = model(tokens)
        y.cpu()
