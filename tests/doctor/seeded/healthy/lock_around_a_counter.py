"""A lock is held for as long as it takes to count."""

import threading

import torch
from torch import nn


def main(device: str) -> None:
    lock = threading.Lock()
    model = nn.Linear(16, 16).to(device).eval()
    served = 0

    def serve() -> None:
        nonlocal served
        with torch.inference_mode():
            for _ in range(20):
                model(torch.ones(2, 16, device=device))
                with lock:
                    served += 1

    threads = [threading.Thread(target=serve) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served == 60
