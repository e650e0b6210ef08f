"""/metrics is the sum over all processes, and does not fall when one of them dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from ostinato.serve.metrics import Metrics, merge
from ostinato.serve.peers import Peers, answer_in_thread

BEGAN = 'ostinato_requests_total{kind="chat"}'


def number(snapshots: list[bytes], name: str = BEGAN) -> float:
    lines = merge(snapshots).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def asking(folder: Path, ask: Callable[[Peers, Metrics], Awaitable[None]]) -> None:
    """Run `ask` as one front end of a service."""

    async def run() -> None:
        metrics = Metrics("front-0")
        peers = Peers(folder / "front-0.1.metrics", metrics.snapshot)
        await peers.start()
        await ask(peers, metrics)
        peers.close()

    asyncio.run(run())


def test_the_numbers_of_all_processes_are_added_up(tmp_path: Path) -> None:
    other = Metrics("front-1")
    answer_in_thread(tmp_path / "front-1.2.metrics", other.snapshot)

    async def ask(peers: Peers, metrics: Metrics) -> None:
        metrics.request_began("chat")
        other.request_began("chat")
        other.request_began("chat")
        assert number(await peers.gather()) == 3

    asking(tmp_path, ask)


def test_what_a_dead_process_had_counted_stays_and_what_it_was_doing_does_not(
    tmp_path: Path,
) -> None:
    async def ask(peers: Peers, metrics: Metrics) -> None:
        other = Metrics("front-1")
        dying = Peers(tmp_path / "front-1.2.metrics", other.snapshot)
        await dying.start()
        other.request_began("chat")
        assert number(await peers.gather()) == 1
        assert number(await peers.gather(), "ostinato_requests_in_flight") == 1
        dying.close()
        (tmp_path / "front-1.2.metrics").unlink(missing_ok=True)
        again = Metrics("front-1")
        living = Peers(tmp_path / "front-1.3.metrics", again.snapshot)
        await living.start()
        again.request_began("chat")
        assert number(await peers.gather()) == 2
        assert number(await peers.gather(), "ostinato_requests_in_flight") == 1
        living.close()

    asking(tmp_path, ask)


def test_another_front_end_goes_on_from_the_same_numbers(tmp_path: Path) -> None:
    async def ask(peers: Peers, metrics: Metrics) -> None:
        metrics.request_began("chat")
        await peers.gather()

    asking(tmp_path, ask)  # and it ends

    async def ask_later(peers: Peers, metrics: Metrics) -> None:
        assert number(await peers.gather()) == 1

    metrics = Metrics("front-1")

    async def run() -> None:
        peers = Peers(tmp_path / "front-1.2.metrics", metrics.snapshot)
        await peers.start()
        await ask_later(peers, metrics)
        peers.close()

    asyncio.run(run())


def test_a_process_that_hangs_costs_its_own_numbers_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "engine.9.metrics"))
        hanging.listen(1)

        async def ask(peers: Peers, metrics: Metrics) -> None:
            metrics.request_began("chat")
            began = asyncio.get_running_loop().time()
            assert number(await peers.gather()) == 1
            assert asyncio.get_running_loop().time() - began < 2

        asking(tmp_path, ask)
