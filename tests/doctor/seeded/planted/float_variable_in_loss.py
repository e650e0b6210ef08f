"""A weight computed from the model's output goes into the loss as a number."""

import torch
from torch import nn

EXPECT = "OST105"
COMPANIONS = ("OST101",)


def main(device: str) -> None:
    model = nn.Linear(8, 8).to(device)
    for _ in range(12):
        out = model(torch.ones(4, 8, device=device))
        balance = float(out.mean())  # <- here
        loss = out.pow(2).mean() * balance
        loss.backward()
        model.zero_grad()
