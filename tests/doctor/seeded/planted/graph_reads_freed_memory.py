"""A graph captured by hand reads an input that was replaced."""

import torch
from torch import nn

EXPECT = "OST204"
NEEDS = "gpu"


def main(device: str) -> None:
    model = nn.Linear(64, 64).to(device).eval()
    static = torch.ones(8, 64, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        model(static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(static)
        for _ in range(60):
            static = torch.ones(8, 64, device=device)
            graph.replay()
    torch.cuda.synchronize()
