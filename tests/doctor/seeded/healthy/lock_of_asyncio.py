"""A lock of asyncio is held across an await, as it is meant to be."""

import asyncio


async def answer(lock: asyncio.Lock) -> None:
    async with lock:
        await asyncio.sleep(0.001)


def main(device: str) -> None:
    async def serve() -> None:
        lock = asyncio.Lock()
        await asyncio.gather(*(answer(lock) for _ in range(10)))

    asyncio.run(serve())
