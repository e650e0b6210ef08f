"""Clients do anything, processes are stopped and killed: all ends, and nothing is left."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from serve.mischief import befall, meet
from serve.processes import Service, served
from serve.running import wait_for

pytestmark = pytest.mark.slow
KEY = "admin-key"
PATIENCE_S = 240


async def soak(service: Service, seed: int, streams: int = 24, seconds: float = 8) -> Counter[str]:
    """Have so many clients at once for so long, and wait for the end of each."""
    ends: Counter[str] = Counter()
    port = int(service.url.rsplit(":", 1)[1])
    until = asyncio.get_running_loop().time() + seconds

    async def go_on(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        while asyncio.get_running_loop().time() < until:
            await meet(port, chance, ends)

    processes = service.children()
    clients = [asyncio.create_task(go_on(number)) for number in range(streams)]
    await befall(processes, seconds, random.Random(seed))
    _, waiting = await asyncio.wait(clients, timeout=PATIENCE_S)
    if waiting:
        for one in service.children():  # their stacks are in the log that the failure shows
            one.send_signal(signal.SIGUSR1)
        await asyncio.sleep(5)
    assert not waiting, (len(waiting), ends, service.log[-400:])
    for client in clients:
        client.result()
    return ends


def counts(service: Service) -> dict[str, int]:
    headers = {"authorization": f"Bearer {KEY}"}
    answer = service.http.get("/admin/counts", headers=headers)
    said: dict[str, int] = answer.json() if answer.status_code == 200 else {"running": -1}
    return said


def test_whatever_befalls_it_every_client_ends_and_nothing_is_left(
    tiny_chat: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    options = ("--front-ends", "2", "--admin-key-file", str(keys), "--max-waiting", "40")
    with served(tiny_chat, *options) as service:
        pages = counts(service)["available_pages"]
        for seed, victim in enumerate(("", "engine_process", "front_process")):
            for one in service.children():
                if victim and victim in " ".join(one.cmdline()):
                    one.kill()
                    break
            ends = asyncio.run(soak(service, seed))
            assert not [end for end in ends if end.endswith((": cut", ": 500"))], ends
            assert sum(ends.values()) >= 24
            wait_for(service.is_ready, PATIENCE_S)
            wait_for(lambda: counts(service)["running"] == 0, PATIENCE_S)
            left = counts(service)
            assert (left["waiting"], left["under_way"]) == (0, 0)
            assert left["available_pages"] == pages
        service.engine.send_signal(signal.SIGUSR1)  # it says where it stands, and goes on
        wait_for(lambda: any("in _go_round" in str(line["message"]) for line in service.log))
        assert service.is_ready()
        assert service.stop() == 0
