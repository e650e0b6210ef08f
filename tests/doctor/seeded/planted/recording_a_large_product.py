"""The time is in one large product; recording it buys nothing."""

import torch

from ostinato import graphed

EXPECT = "OST207"
NEEDS = "gpu"


def main(device: str) -> None:
    step = graphed(lambda x, y: x @ y, admit_after=1)
    size = 8192
    x, y = (torch.ones(size, size, device=device) for _ in range(2))
    with torch.inference_mode():
        for _ in range(60):
            step(x, y)
