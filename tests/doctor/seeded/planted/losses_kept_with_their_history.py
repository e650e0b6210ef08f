"""Every step's loss is kept, and with it the whole graph."""

import time

import torch
from torch import nn

EXPECT = "OST602"
NEEDS = "gpu"
COMPANIONS = ("OST102", "OST601")


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).to(device)
    losses = []
    for _ in range(300):
        losses.append(model(torch.ones(512, 512, device=device)).sum())
        time.sleep(0.003)
    torch.cuda.synchronize()
