"""Small tensors that stay lie between large ones that go."""

import time

import torch

from ostinato.doctor import step

EXPECT = "OST601"
NEEDS = "gpu"


def main(device: str) -> None:
    kept = []
    for _ in range(40):
        with step():
            passing = [torch.empty(11 << 20, dtype=torch.uint8, device=device) for _ in range(2)]
            kept.append(torch.empty(9 << 20, dtype=torch.uint8, device=device))
            passing.clear()
    wide = [torch.empty(12 << 20, dtype=torch.uint8, device=device) for _ in range(40)]
    del kept[::2], wide[::2]
    large = torch.empty(900 << 20, dtype=torch.uint8, device=device)
    for _ in range(200):
        with step():
            large.fill_(1)
            time.sleep(0.004)
    torch.cuda.synchronize()
