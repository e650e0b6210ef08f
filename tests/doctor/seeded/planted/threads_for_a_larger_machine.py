"""Torch is given many more threads than there are CPUs."""

import os

import torch

EXPECT = "OST505"


def main(device: str) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(max(24, 3 * len(os.sched_getaffinity(0))))
    x = torch.ones(400, 400)
    for _ in range(60):
        x = torch.tanh(x @ x)
    torch.set_num_threads(before)
