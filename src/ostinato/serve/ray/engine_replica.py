"""One engine as a replica of a Ray Serve deployment: messages in, frames of messages out.

It speaks `serve.wire` as the engine's process does, so a front end cannot tell the difference. What
its engine makes while a frame is on its way leaves in the next one: nothing waits for a timer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from queue import SimpleQueue
from time import time
from typing import Any

import msgspec

from ostinato.serve import wire
from ostinato.serve.desk import Desk, Living, News, block_of
from ostinato.serve.ray.scaling import ROWS, RUNNING, WAITING
from ostinato.serve.settings import Settings
from ostinato.serve.versions import Version, Versions

_generate = msgspec.msgpack.Decoder(wire.Generate)
_ask = msgspec.msgpack.Decoder(wire.Ask)
_encode = msgspec.msgpack.Encoder().encode


class _Caller:
    """Whoever waits for one request's news; see `desk.Client`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.living: dict[int, Living] = {}
        self._news: SimpleQueue[News] = SimpleQueue()
        self._has_come = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def put(self, news: News) -> None:
        """Take news, in the engine's thread."""
        self._news.put(news)
        self._loop.call_soon_threadsafe(self._has_come.set)

    async def blocks(self) -> list[wire.Block]:
        """Wait for news, and return all there are."""
        await self._has_come.wait()
        self._has_come.clear()
        blocks = []
        while not self._news.empty():
            blocks.append(block_of(*self._news.get()))
        return blocks


class EngineReplica:
    """One engine. Ray makes it, asks after its health and numbers, and ends it.

    Args:
        settings: As `Settings.to_json` writes them.
    """

    def __init__(self, settings: bytes) -> None:
        from ostinato.llm import Engine, EngineConfig

        read = Settings.from_json(settings)
        self._engine = Engine(EngineConfig.read(read.engine_options))
        self._engine.wait_warm()  # Ray sends it requests when this returns
        folder = _folder_of(read.model)
        first = Version(read.first_version, folder, int(time()))
        self._desk = Desk(self._engine, Versions(first, tokenizer_folder=folder))
        self._callers = 0

    async def generate(self, message: bytes, marks: list[bytes]) -> AsyncIterator[bytes]:
        """Answer one request with frames.

        Args:
            marks: Of its prompt, for whoever chose this replica.
        """
        asked = _generate.decode(message)
        self._callers += 1
        caller = _Caller(f"ray{self._callers}")
        admitted = self._desk.submit(asked, caller)
        try:
            yield _encode([admitted])
            left = 0 if admitted.problem else int(asked.options.get("n") or 1)
            while left:
                blocks = await caller.blocks()
                left -= sum(block.finish is not None for block in blocks)
                yield _encode(blocks)
        finally:  # also when the client is gone, and Ray ends this
            self._desk.leave(caller)

    async def describe(self) -> bytes:
        """Introduce the engine, and say how it stands."""
        return _encode([self._desk.hello(), self._desk.pulse()])

    async def ask(self, message: bytes) -> bytes:
        """Answer about the engine, as `desk.Desk.answer`."""
        asked = _ask.decode(message)
        return _encode([await asyncio.to_thread(self._desk.answer, asked)])

    async def tokens_of(self) -> tuple[int, int]:
        """Return the process that it is in, and how many tokens its engine has written."""
        return os.getpid(), self._engine.counts().new_tokens

    def check_health(self) -> None:
        """Tell Ray whether this replica can go on; it is replaced if not.

        Raises:
            RuntimeError: It cannot.
        """
        fault = self._engine.fault
        if fault is not None:
            raise RuntimeError(f"the engine has failed: {fault}")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell Ray's autoscaler how much there is to do."""
        counts = self._engine.counts().scheduler
        return {
            WAITING: float(counts.waiting),
            RUNNING: float(counts.running),
            ROWS: float(self._engine.config.max_batch),
        }

    def __del__(self) -> None:
        engine: Any = getattr(self, "_engine", None)
        if engine is not None:
            engine.close()


def _folder_of(model: str) -> str:
    if model == "smollm2":
        from ostinato.checkpoints import smollm2_folder

        return str(smollm2_folder())
    return model
