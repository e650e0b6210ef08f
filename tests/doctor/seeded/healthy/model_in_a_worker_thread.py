"""The event loop hands the model's work to a thread."""

import asyncio

import torch
from torch import nn


def main(device: str) -> None:
    model = nn.Linear(64, 64).to(device).eval()

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.ones(8, 64, device=device))

    async def serve() -> None:
        for _ in range(20):
            await asyncio.to_thread(run)

    asyncio.run(serve())
