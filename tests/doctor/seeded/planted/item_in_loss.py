"""A term of the loss is read to the host, and trains nothing."""

import torch
from torch import nn

EXPECT = "OST105"
COMPANIONS = ("OST101",)


def main(device: str) -> None:
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(12):
        out = model(torch.ones(4, 8, device=device))
        loss = out.pow(2).mean() + 0.1 * out.abs().mean().item()  # <- here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
