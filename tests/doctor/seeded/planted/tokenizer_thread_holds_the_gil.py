"""A thread that works in Python keeps the model's thread from launching."""

import threading
import time

import torch
from torch import nn

EXPECT = "OST501"


def busy(stop: threading.Event) -> int:
    total = 0
    while not stop.is_set():
        for number in range(2000):
            total += number * number % 7  # <- here
    return total


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(8)]).to(device).eval()
    stop = threading.Event()
    worker = threading.Thread(target=busy, args=(stop,), name="tokenizer")
    worker.start()
    with torch.inference_mode():
        until = time.perf_counter() + 0.8
        while time.perf_counter() < until:
            model(torch.ones(2, 8, device=device))
    stop.set()
    worker.join()
