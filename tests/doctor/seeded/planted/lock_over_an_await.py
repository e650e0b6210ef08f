"""A lock of threading is held by a coroutine while it awaits."""

import asyncio
import threading

EXPECT = "OST502"


async def answer(lock: threading.Lock) -> None:
    with lock:  # <- here
        await asyncio.sleep(0.001)


def main(device: str) -> None:
    lock = threading.Lock()

    async def serve() -> None:
        for _ in range(5):
            await answer(lock)

    asyncio.run(serve())
