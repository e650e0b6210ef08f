"""Three servers behind a balancer, and clients who note what they get."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deploy.replica import TOKENS

CLIENTS = 6


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


_chance = random.SystemRandom()  # tests may seed the usual one
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nobody has, out of those that the system gives to nobody by itself.

    Nor one that was returned before: nobody may listen there yet.
    """
    while (port := _chance.randrange(20000, 30000)) in _given or listens(port):
        pass
    _given.add(port)
    return port


def wait_listening(port: int) -> None:
    """Wait until somebody takes connections there."""
    until = time.monotonic() + 60
    while not listens(port):
        assert time.monotonic() < until, f"nobody listens on {port}"
        time.sleep(0.02)


@dataclass
class Servers:
    """What lies behind a balancer: the servers a, b and c."""

    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]]

    def become(self, name: str, **how: str) -> None:
        """Make one slow, failing, or well again; see `replica.Replica.become`."""
        url = f"http://127.0.0.1:{self.ports[name]}/become"
        httpx.post(url, params=how, timeout=5).raise_for_status()

    def asked(self, name: str) -> int:
        """Return how many requests for an answer have reached one."""
        url = f"http://127.0.0.1:{self.ports[name]}/asked"
        return int(httpx.get(url, timeout=5).text)

    def readiness(self, name: str) -> int:
        """Return the status of its readiness."""
        return httpx.get(f"http://127.0.0.1:{self.ports[name]}/readyz", timeout=5).status_code


@contextmanager
def three_servers() -> Iterator[Servers]:
    """Start them, and kill what is left of them at the end."""
    ports = {name: free_port() for name in "abc"}
    here = Path(__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(here), *sys.path]))
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "deploy.replica", str(port), name],
            cwd=here,
            env=os.environ | {"PYTHONPATH": path},
        )
        for name, port in ports.items()
    }
    try:
        for port in ports.values():
            wait_listening(port)
        yield Servers(ports, processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


@dataclass
class Load:
    """What clients saw.

    Attributes:
        whole: Answers that came whole, by the server that gave them.
        wrong: What else came, in words.
        first_s: Seconds to the first byte, of whole answers.
    """

    whole: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    first_s: list[float] = field(default_factory=list)


def load(port: int, seconds: float, clients: int = CLIENTS) -> Load:
    """Let so many clients ask again and again."""
    seen = Load()
    asyncio.run(_load(port, seconds, clients, seen))
    return seen


def load_and(port: int, *acts: Callable[[], object]) -> Load:
    """Load for some seconds, and do something after each half of one."""

    async def run() -> Load:
        seen = Load()
        loading = asyncio.create_task(_load(port, 2.0 + len(acts) / 2, CLIENTS, seen))
        for act in acts:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(act)
        await loading
        return seen

    return asyncio.run(run())


async def _load(port: int, seconds: float, clients: int, seen: Load) -> None:
    end = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=10, limits=limits) as client:

        async def ask_on() -> None:
            while time.monotonic() < end:
                await _ask(client, port, seen)

        await asyncio.gather(*(ask_on() for _ in range(clients)))


async def _ask(client: httpx.AsyncClient, port: int, seen: Load) -> None:
    began = time.monotonic()
    url = f"http://127.0.0.1:{port}/v1/completions"
    first_s, text = 0.0, ""
    try:
        async with client.stream("POST", url, json={"prompt": "x"}) as reply:
            if reply.status_code != 200:
                seen.wrong[str(reply.status_code)] += 1
                await asyncio.sleep(0.05)
                return
            async for piece in reply.aiter_text():
                first_s = first_s or time.monotonic() - began
                text += piece
            name = reply.headers["x-replica"]
    except httpx.HTTPError:
        seen.wrong["cut"] += 1
        return
    if text.count("data:") != TOKENS + 1:
        seen.wrong["short"] += 1
        return
    seen.whole[name] += 1
    seen.first_s.append(first_s)
