"""A list becomes a tensor on the GPU in every step."""

import torch
from torch import nn

EXPECT = "OST101"
NEEDS = "gpu"
COMPANIONS = ("OST102", "OST201")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.tensor([0.25] * 64, device=x.device)  # <- here
        return self.layer(x) * weights


def main(device: str) -> None:
    model = Model().to(device).eval()
    with torch.inference_mode():
        for _ in range(60):
            x = model(torch.ones(64, 64, device=device))
        x.cpu()
