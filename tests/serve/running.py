"""A front end on loopback, in a thread of this process, over an engine of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import uvicorn

from ostinato.llm import Engine, EngineConfig
from ostinato.serve.app import build
from ostinato.serve.desk import Desk
from ostinato.serve.drain import Drain
from ostinato.serve.features import more_routes, open_reason
from ostinato.serve.front_process import _Server
from ostinato.serve.health import Health
from ostinato.serve.http_guard import guarded
from ostinato.serve.local_link import LocalLink
from ostinato.serve.metrics import Metrics
from ostinato.serve.services import Services
from ostinato.serve.settings import Settings
from ostinato.serve.slo import Breaker
from ostinato.serve.tokens import Tokens
from ostinato.serve.versions import Version, Versions

ENGINE: dict[str, Any] = {
    "device": "cpu",
    "max_batch": 8,
    "kv_memory": "16MiB",
    "most_logprobs": 5,
    "backend": "eager",
}
_Answer = TypeVar("_Answer")


@dataclass
class Running:
    """One service.

    Attributes:
        host, port: Where it listens.
    """

    host: str
    port: int
    engine: Engine
    services: Services
    loop: asyncio.AbstractEventLoop
    server: uvicorn.Server

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def in_loop(self, work: Callable[[], _Answer]) -> _Answer:
        """Do something in the event loop, and return what came of it."""

        async def call() -> _Answer:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(60)

    def tasks(self) -> int:
        """How many tasks the event loop has."""
        return self.in_loop(lambda: len(asyncio.all_tasks()))

    def is_clean(self) -> bool:
        """Whether nothing of any request is left: rows, pages, requests, in engine and front."""
        counts = self.engine.counts().scheduler
        self.engine.check_integrity()
        link: Any = self.services.link
        return (
            not (counts.waiting or counts.running or counts.under_way)
            and counts.available_pages == self.engine._core.books.capacity
            and not link.open_requests
            and not link.living
            and not self.services.drain.open_requests
        )


def wait_for(is_there: Callable[[], bool], seconds: float = 60.0) -> float:
    """Wait until it is, and return how long that took."""
    began = monotonic()
    while not is_there():
        assert monotonic() - began < seconds, "it did not happen in time"
        sleep(0.002)
    return monotonic() - began


def hold(engine: Engine) -> Callable[[], None]:
    """Let no step begin; return what ends that."""
    core: Any = engine._core
    step, goes_on = core._step, threading.Event()

    def held() -> None:
        goes_on.wait(250)
        step()

    core._step = held

    def undo() -> None:
        core._step = step
        goes_on.set()

    return undo


def slow_down(engine: Engine, seconds: float) -> Callable[[], None]:
    """Make every step take some time; return what ends that."""
    core: Any = engine._core
    step = core._step

    def slow() -> None:
        sleep(seconds)
        step()

    core._step = slow

    def undo() -> None:
        core._step = step

    return undo


@contextmanager
def running(
    folder: Path, engine: dict[str, Any] | None = None, **options: Any
) -> Iterator[Running]:
    """Run a service until the block ends."""
    settings = Settings(model=str(folder), port=0, served_name="tiny", **options)
    with Engine(EngineConfig.read({"model": folder, **ENGINE, **(engine or {})})) as made:
        ready: list[Running] = []
        failed: list[BaseException] = []
        started = threading.Event()

        def run() -> None:
            try:
                asyncio.run(_serve(settings, made, folder, ready, started))
            except BaseException as error:  # noqa: BLE001 - the test's thread raises it again
                failed.append(error)
                started.set()

        thread = threading.Thread(target=run)
        thread.start()
        assert started.wait(120)
        if failed:
            raise failed[0]
        service = ready[0]
        try:
            yield service
        finally:
            service.server.should_exit = True
            thread.join(60)
        assert not thread.is_alive(), "the front end does not stop"
        assert not failed, failed


async def _serve(
    settings: Settings,
    engine: Engine,
    folder: Path,
    ready: list[Running],
    started: threading.Event,
) -> None:
    versions = Versions(Version("initial", str(folder), 1), tokenizer_folder=str(folder))
    link = LocalLink(Desk(engine, versions), settings.served_name)
    drain, breaker = Drain(), Breaker()
    services = Services(
        settings=settings,
        metrics=Metrics("front-0"),
        health=Health(link, drain, settings.progress_s, open_reason=lambda: open_reason(breaker)),
        drain=drain,
        link=link,
        tokens=Tokens(lambda: engine.tokenizer),
        breaker=breaker,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        build(services, more_routes(services)),
        http=guarded(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=int(settings.keep_alive_s),
        timeout_graceful_shutdown=2,
    )
    server = _Server(config)
    host, port = listener.getsockname()
    loop = asyncio.get_running_loop()
    ready.append(Running(host, port, engine, services, loop, server))
    loop.call_soon(started.set)
    await server.serve([listener])
    link.close()
    assert services.tokens is not None
    services.tokens.close()
