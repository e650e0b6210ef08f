"""A position in Python makes a new signature of every call."""

import torch

from ostinato import graphed

EXPECT = "OST208"


def decode(x: torch.Tensor, position: int) -> torch.Tensor:
    return x * position


def main(device: str) -> None:
    step = graphed(decode, admit_after=1)
    with torch.inference_mode():
        for position in range(50):
            step(torch.ones(2, 16, device=device), position)
