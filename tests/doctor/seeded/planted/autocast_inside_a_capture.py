"""Autocast is entered inside of a capture by hand."""

import torch
from torch import nn

EXPECT = "OST205"
NEEDS = "gpu"


def main(device: str) -> None:
    model = nn.Linear(64, 64).to(device).eval()
    static = torch.ones(8, 64, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.autocast("cuda", torch.bfloat16):
            model(static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph), torch.autocast("cuda", torch.bfloat16):  # <- here
            model(static)
        for _ in range(20):
            graph.replay()
    torch.cuda.synchronize()
