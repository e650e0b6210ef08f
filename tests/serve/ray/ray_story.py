"""What happens on a local Ray: `ray_story.py STORY MODEL OUT PORT` writes what was seen as JSON.

The story "whole" has everything in it, "killed" the end of an engine alone. MODEL is a folder or a
name that the service knows.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve

from ostinato.bench.serve.client import Client, Share
from ostinato.bench.serve.planning import Planned
from ostinato.bench.serve.seen import Seen
from ostinato.serve.ray import application
from ostinato.serve.settings import Settings

PORT = int(sys.argv[4])
URL = f"http://127.0.0.1:{PORT}"
SCALING = {"upscale_delay_s": 0.5, "downscale_delay_s": 1.0, "metrics_interval_s": 0.5,
           "look_back_period_s": 1.0}  # fmt: skip


def settings(model: str) -> Settings:
    engine = {"device": "cpu", "max_batch": 4, "kv_memory": "64MiB", "backend": "eager"}
    # Hardly anything is promised: how fast this machine is has no part in the story.
    return Settings(model=model, served_name="told", engine=engine, drain_s=30.0,
                    objectives=("ttft=600", "itl=off"))  # fmt: skip


def run(model: str, engines: tuple[int, int]) -> Any:
    needs = {"num_cpus": 0.5}
    made = application(settings(model), engines=engines, engine_resources=needs, scaling=SCALING)
    return serve.run(made, name="ostinato")


def share(streams: list[list[Planned]]) -> Share:
    body: dict[str, object] = {
        "model": "told", "stream": True, "temperature": 0.0, "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    begin = time.monotonic() + 0.1
    return Share("127.0.0.1", PORT, "/v1/completions", body, streams, begin, timeout_s=400)


def send(streams: list[list[Planned]]) -> list[Seen]:
    return asyncio.run(Client(share(streams)).run())


async def wait_until(is_so: Callable[[], bool], seconds: float = 150.0) -> None:
    until = time.monotonic() + seconds
    while not await asyncio.to_thread(is_so):
        assert time.monotonic() < until, "it did not happen in time"
        await asyncio.sleep(0.2)


def living_engines() -> int:
    deployment = serve.status().applications["ostinato"].deployments["engines"]
    return int(deployment.replica_states.get("RUNNING", 0))


def prompts(count: int, new: int) -> list[list[Planned]]:
    return [[Planned([20 + n, *range(30, 60)], new)] for n in range(count)]


def numbers(engines: int = 2) -> dict[int, int]:
    """Ask until so many engines answer; return the new tokens of each so far, by its process."""
    handle = serve.get_deployment_handle("engines", "ostinato")
    until = time.monotonic() + 150
    while True:
        asked = [handle.tokens_of.remote() for _ in range(4 * engines)]  # at once, for all of them
        found = dict(one.result(timeout_s=60) for one in asked)
        if len(found) == engines:
            return found
        assert time.monotonic() < until, f"{sorted(found)} answer, not {engines}"
        time.sleep(0.5)


def kill_one(told: dict[str, Any], new: int) -> None:
    """Kill an engine that has begun to write, and note what became of every request."""
    before = numbers()
    victim = min(before)

    async def story() -> list[Seen]:
        asking = asyncio.create_task(Client(share(prompts(16, new))).run())
        await wait_until(lambda: numbers()[victim] > before[victim] + 8)
        os.kill(victim, signal.SIGKILL)
        return await asking

    seen = asyncio.run(story())
    errors = [one.error for one in seen if one.error]
    told["killed"] = {"requests": len(seen), "whole": len(seen) - len(errors), "errors": errors,
                      "tokens": sorted({one.tokens for one in seen if not one.error})}  # fmt: skip
    after = numbers()
    told["is_replaced"] = victim not in after
    again = send(prompts(8, 20))
    told["after"] = {"whole": sum(one.is_whole for one in again),
                     "errors": [one.error for one in again if one.error]}  # fmt: skip


def engines_of_alike_prompts() -> int:
    """Send prompts of one beginning, and count the engines that wrote for them."""
    before = numbers()
    beginning = [40 + n % 50 for n in range(256)]
    for n in range(6):
        send([[Planned([*beginning, 100 + n], 4)]])
    after = numbers()
    return sum(after[pid] > before[pid] for pid in after)


def everything(told: dict[str, Any], model: str) -> None:
    asked = {"model": "told", "prompt": "Hello", "max_tokens": 8, "temperature": 0,
             "ignore_eos": True}  # fmt: skip
    first, again = (httpx.post(f"{URL}/v1/completions", json=asked, timeout=60) for _ in range(2))
    same = first.json()["choices"][0]["text"] == again.json()["choices"][0]["text"]
    told["first"] = {"status": first.status_code, "same": same}
    metrics = httpx.get(f"{URL}/metrics", timeout=60).text
    told["promises"] = sorted(set(re.findall(r'burn_rate\{[^}]*objective="(\w+)"', metrics)))
    told["same_beginning"] = engines_of_alike_prompts()
    [slow] = send([[Planned(list(range(20, 40)), 40)]])
    told["frames"] = len(slow.gaps_s) + 1
    told["most_gap_s"] = max(slow.gaps_s)
    kill_one(told, 300)
    told["scaled"] = come_and_go(model)


def main(story: str, model: str, out: Path) -> None:
    told: dict[str, Any] = {}
    ray.init(num_cpus=4, include_dashboard=False, logging_level="warning",
             object_store_memory=100 << 20)  # fmt: skip
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    run(model, (2, 2))
    if story == "whole":
        everything(told, model)
    else:
        kill_one(told, 24)
    out.write_text(json.dumps(told))
    serve.shutdown()
    ray.shutdown()


def come_and_go(model: str) -> dict[str, Any]:
    """Flood one engine until there are two, then have two long streams, and one engine must go."""
    run(model, (1, 2))
    told: dict[str, Any] = {"before": living_engines()}
    flood = [[Planned([20 + n % 30, n % 200, *range(30, 60)], 150)] for n in range(40)]

    async def story() -> tuple[list[Seen], list[Seen]]:
        is_enough = asyncio.Event()

        async def flood_on() -> list[Seen]:
            seen: list[Seen] = []
            while not is_enough.is_set():  # an engine may take long to come, and must be wanted
                seen += await Client(share(flood)).run()
            return seen

        flooding = asyncio.create_task(flood_on())
        await wait_until(lambda: living_engines() == 2)
        told["flooded"] = living_engines()
        is_enough.set()
        flooded = await flooding
        long = asyncio.create_task(Client(share(prompts(2, 2500))).run())
        await wait_until(lambda: living_engines() == 1 or long.done())
        told["still_writing"] = not long.done()
        return flooded, await long

    flooded, long = asyncio.run(story())
    told["flood_errors"] = [one.error for one in flooded if one.error]
    told["errors"] = [one.error for one in long if one.error]
    told["tokens"] = [one.tokens for one in long]
    return told


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
