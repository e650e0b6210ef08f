"""Torch has as many threads as there are CPUs."""

import os

import torch


def main(device: str) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    x = torch.ones(300, 300)
    for _ in range(40):
        x = torch.tanh(x @ x)
    torch.set_num_threads(before)
