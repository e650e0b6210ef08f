"""Prompts of all lengths are recorded one by one."""

import torch
from torch import nn

from ostinato import graphed

EXPECT = "OST202"
COMPANIONS = ("OST102",)


def main(device: str) -> None:
    model = nn.Linear(16, 16).to(device).eval()
    step = graphed(model, admit_after=1)
    with torch.inference_mode():
        for call in range(60):
            step(torch.ones(1, 1 + call * 7 % 50, 16, device=device))
