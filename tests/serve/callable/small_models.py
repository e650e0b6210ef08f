"""Factories of small models to serve; the model's own process imports them by this name."""

from __future__ import annotations

import ctypes
import os
import time

import torch
from torch import Tensor, nn

from ostinato.serve.callable import Servable, TensorSpec


class Scaled(nn.Module):
    """Rows times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 5.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def scaled() -> Servable:
    return Servable(Scaled().eval(), {"x": TensorSpec("FP32", (-1, 4))}, batch_sizes=(1, 2, 4, 8))


def labelled() -> Servable:
    return Servable(Scaled().eval(), {"x": TensorSpec("FP32", (-1, 4))}, version="march-7")


def mean_of_ids() -> Servable:
    torch.manual_seed(0)
    table = nn.Embedding(50, 6)

    def encode(ids: Tensor, mask: Tensor) -> Tensor:
        weights = mask[..., None].to(torch.float32)
        return (table(ids) * weights).sum(1) / weights.sum(1)

    inputs = {"ids": TensorSpec("INT64", (-1, -1)), "mask": TensorSpec("INT64", (-1, -1))}
    return Servable(encode, inputs, outputs=("vector",), batch_sizes=(1, 2, 4))


def convolution() -> Servable:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 5),
    )  # fmt: skip
    pixels = TensorSpec("FP32", (-1, 3, 8, 8))
    return Servable(net.eval(), {"input": pixels}, outputs=("logits",), batch_sizes=(1, 2, 4))


def picky() -> Servable:
    """Raises on a row of 13, which only eager code can see."""

    def pick(x: Tensor) -> Tensor:
        if bool((x == 13).any()):
            raise ValueError("13 is not taken")
        return x + 1

    return Servable(pick, {"x": TensorSpec("FP32", (-1, 2))}, batch_sizes=(1, 2, 4))


def fatal() -> Servable:
    """Ends its process on a row of 99, and breaks it on a row of 98."""

    def end(x: Tensor) -> Tensor:
        if bool((x == 99).any()):
            os._exit(3)
        if bool((x == 98).any()):
            ctypes.string_at(0)
        return x + 1

    return Servable(end, {"x": TensorSpec("FP32", (-1, 2))}, batch_sizes=(1, 2, 4))


def gripping() -> Servable:
    """Holds Python's lock for as many seconds as its first row says, as a library in C may."""
    libc = ctypes.PyDLL(None)

    def grip(x: Tensor) -> Tensor:
        libc.sleep(int(x[0, 0]))
        return x + 1

    return Servable(grip, {"x": TensorSpec("FP32", (-1, 2))}, batch_sizes=(1, 2))


def sleepy() -> Servable:
    """Takes as many seconds as its first row says."""

    def sleep(x: Tensor) -> Tensor:
        time.sleep(float(x[0, 0]))
        return x + 1

    return Servable(sleep, {"x": TensorSpec("FP32", (-1, 2))}, batch_sizes=(1, 2))


def unfit() -> int:
    return 3
