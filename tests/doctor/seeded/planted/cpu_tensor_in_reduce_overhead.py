"""A tensor on the CPU keeps torch.compile from its CUDA graphs."""

import torch

EXPECT = "OST303"
NEEDS = "gpu"
COMPANIONS = ("OST101", "OST102")


def add(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x.relu() + bias.sum().to(x.device)


def main(device: str) -> None:
    step = torch.compile(add, mode="reduce-overhead")
    bias = torch.ones(4)
    with torch.inference_mode():
        for _ in range(12):
            y = step(torch.ones(8, 64, device=device), bias)
        y.cpu()
