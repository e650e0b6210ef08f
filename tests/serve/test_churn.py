"""Many streams, some of them cancelled at any moment: nothing of them is left anywhere."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from time import monotonic

import httpx
import psutil
import pytest

from serve.running import Running, running, wait_for

CANCELLED = 0.3


async def churn(service: Running, streams: int, seconds: float) -> Counter[str]:
    """Keep so many streams going for so long, and cancel a third of them at random."""
    ends: Counter[str] = Counter()
    deadline = monotonic() + seconds
    limits = httpx.Limits(max_connections=streams)
    async with httpx.AsyncClient(base_url=service.url, timeout=120, limits=limits) as client:

        async def go_on(seed: int) -> None:
            chance = random.Random(seed)
            while monotonic() < deadline:
                ends[await one(client, chance)] += 1

        await asyncio.gather(*(go_on(seed) for seed in range(streams)))
    return ends


async def one(client: httpx.AsyncClient, chance: random.Random) -> str:
    body = {
        "prompt": "x" * chance.randint(1, 60),
        "max_tokens": chance.randint(1, 60),
        "n": chance.choice([1, 1, 1, 2]),
        "ignore_eos": True,
        "stream": chance.random() < 0.8,
    }
    if chance.random() >= CANCELLED:
        answer = await client.post("/v1/completions", json=body)
        return str(answer.status_code)
    work = asyncio.create_task(client.post("/v1/completions", json=body))
    await asyncio.sleep(chance.random() * 0.15)
    work.cancel()
    await asyncio.wait([work])
    return "cancelled"


def handles() -> int:
    return psutil.Process().num_fds()


@pytest.mark.parametrize(
    ("streams", "seconds"), [(24, 3), pytest.param(200, 60, marks=pytest.mark.slow)]
)
def test_nothing_leaks(tiny_chat: Path, streams: int, seconds: float) -> None:
    with running(tiny_chat) as service:
        asyncio.run(churn(service, 2, 0.3))  # what is opened once is open by now
        wait_for(service.is_clean)
        wait_for(lambda: not service.server.server_state.connections)
        tasks, open_before = service.tasks(), handles()
        ends = asyncio.run(churn(service, streams, seconds))
        wait_for(service.is_clean)
        wait_for(lambda: not service.server.server_state.connections)
        assert service.tasks() == tasks
        assert handles() <= open_before
        assert ends["200"] > streams
        assert ends["cancelled"] > 0
        assert set(ends) <= {"200", "cancelled", "429"}
        counts = service.engine.counts()
        assert counts.scheduler.available_pages == service.engine._core.books.capacity
