"""A model runs on the event loop's own thread."""

import asyncio

import torch

EXPECT = "OST503"


async def answer(x: torch.Tensor) -> torch.Tensor:
    for _ in range(90):
        x = torch.tanh(x @ x)  # <- here
    await asyncio.sleep(0)
    return x


def main(device: str) -> None:
    x = torch.ones(500, 500, device=device)

    async def serve() -> None:
        for _ in range(5):
            await answer(x)

    asyncio.run(serve())
