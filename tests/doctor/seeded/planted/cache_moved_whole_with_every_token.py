"""A cache on the host crosses the link with every token, and grows."""

import torch
from torch import nn

EXPECT = "OST104"
NEEDS = "gpu"
COMPANIONS = ("OST101",)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1024, 1024)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + cache.to(x.device).mean(0)  # <- here


def main(device: str) -> None:
    model = Model().to(device).eval()
    x = torch.ones(1, 1024, device=device)
    with torch.inference_mode():
        for token in range(60):
            cache = torch.ones(512 * (token + 1), 1024)
            x = model(x, cache)
        x.cpu()
