"""Autocast is entered outside of what is recorded."""

import torch
from torch import nn

from ostinato import graphed


def main(device: str) -> None:
    step = graphed(nn.Sequential(*[nn.Linear(16, 16) for _ in range(12)]).to(device).eval())
    with torch.inference_mode(), torch.autocast(device, torch.bfloat16, cache_enabled=False):
        for _ in range(120):
            step(torch.ones(2, 16, device=device))
