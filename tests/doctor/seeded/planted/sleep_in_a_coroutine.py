"""A coroutine sleeps without awaiting."""

import asyncio
import time

EXPECT = "OST503"


async def answer() -> None:
    time.sleep(0.1)  # <- here
    await asyncio.sleep(0)


def main(device: str) -> None:
    async def serve() -> None:
        for _ in range(5):
            await answer()

    asyncio.run(serve())
