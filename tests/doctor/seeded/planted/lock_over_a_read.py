"""A lock is held while a value is read from the device, and others wait."""

import threading

import torch

EXPECT = "OST502"


def count(lock: threading.Lock, x: torch.Tensor) -> None:
    for _ in range(6):
        with lock:
            total = x @ x
            total.sum().item()  # <- here


def main(device: str) -> None:
    lock = threading.Lock()
    x = torch.ones(600, 600, device=device) / 600
    threads = [threading.Thread(target=count, args=(lock, x)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
