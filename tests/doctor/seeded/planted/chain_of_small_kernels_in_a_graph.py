"""A graph of a thousand element-wise kernels keeps the device busy with nothing."""

import torch

from ostinato.doctor import step

EXPECT = "OST103"
NEEDS = "gpu"


def main(device: str) -> None:
    x = torch.ones(64, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(1000):
            y = y * 1.0001
    for _ in range(60):
        with step():
            graph.replay()
    torch.cuda.synchronize()
