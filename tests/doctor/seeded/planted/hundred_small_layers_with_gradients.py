"""A step of small layers in training: the host launches, the device waits."""

import torch
from torch import nn

EXPECT = "OST102"
NEEDS = "gpu"


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(60)]).to(device)
    x = torch.ones(8, 64, device=device)
    for _ in range(60):
        model(x).sum().backward()
    torch.cuda.synchronize()
