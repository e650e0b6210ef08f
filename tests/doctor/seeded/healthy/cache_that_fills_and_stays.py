"""A cache of a fixed size is filled, and memory stays as it is."""

import time

import torch

from ostinato.doctor import step

NEEDS = "gpu"


def main(device: str) -> None:
    cache = torch.zeros(4096, 4096, device=device)
    x = torch.ones(2048, 4096, device=device)
    for row in range(200):
        with step():
            cache[row] = (x @ cache)[0]
            time.sleep(0.003)
    torch.cuda.synchronize()
