"""A graph captured by hand, its inputs filled in place."""

import torch
from torch import nn

from ostinato.doctor import step

NEEDS = "gpu"


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(20)]).to(device).eval()
    static = torch.ones(64, 1024, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        model(static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(static)
        for _ in range(60):
            with step():
                static.fill_(1)
                graph.replay()
    torch.cuda.synchronize()
