"""Threads that wait on queues hold nothing up."""

import queue
import threading

import torch
from torch import nn


def work(jobs: queue.Queue[torch.Tensor | None], model: nn.Module) -> None:
    with torch.inference_mode():
        while (x := jobs.get()) is not None:
            model(x)


def main(device: str) -> None:
    model = nn.Linear(16, 16).to(device).eval()
    jobs: queue.Queue[torch.Tensor | None] = queue.Queue()
    threads = [threading.Thread(target=work, args=(jobs, model)) for _ in range(4)]
    for thread in threads:
        thread.start()
    stopped = threading.Event()
    for _ in range(40):
        jobs.put(torch.ones(2, 16, device=device))
        stopped.wait(0.01)
    for _ in threads:
        jobs.put(None)
    for thread in threads:
        thread.join()
