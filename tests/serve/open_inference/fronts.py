"""Front ends on loopback, in a thread of this process: one of a callable, one of a tiny engine."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from starlette.routing import BaseRoute

from ostinato.llm import Engine, EngineConfig
from ostinato.serve import open_inference
from ostinato.serve.app import build
from ostinato.serve.callable import Limits
from ostinato.serve.callable.declaration import make
from ostinato.serve.callable.in_process import InProcess
from ostinato.serve.callable.model import Model as CallableModel
from ostinato.serve.desk import Desk
from ostinato.serve.drain import Drain
from ostinato.serve.front_process import _Server
from ostinato.serve.health import Health
from ostinato.serve.http_guard import guarded
from ostinato.serve.local_link import LocalLink
from ostinato.serve.metrics import Metrics
from ostinato.serve.open_inference.grpc_server import GrpcServer
from ostinato.serve.services import Model, Services
from ostinato.serve.settings import Settings
from ostinato.serve.tokens import Tokens
from ostinato.serve.versions import Version, Versions

_Answer = TypeVar("_Answer")
Making = AbstractAsyncContextManager[Services]


@dataclass
class Front:
    """Attributes: port, grpc_port: where it listens; services: what is behind it."""

    port: int
    grpc_port: int
    services: Services
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def in_loop(self, work: Callable[[], _Answer]) -> _Answer:
        async def call() -> _Answer:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(60)


@contextmanager
def front(
    make_services: Callable[[], Making],
    routes: Callable[[Services], list[BaseRoute]] = open_inference.routes,
) -> Iterator[Front]:
    """Run a front end until the block ends."""
    ready: list[tuple[Front, _Server]] = []
    failed: list[BaseException] = []
    started = threading.Event()

    async def serve() -> None:
        async with make_services() as services:
            listener = socket.create_server(("127.0.0.1", 0))
            server = _Server(
                uvicorn.Config(
                    build(services, routes(services)),
                    http=guarded(services.settings),
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    timeout_graceful_shutdown=2,
                )
            )
            grpc = GrpcServer(services, "127.0.0.1", 0)
            await grpc.start()
            loop = asyncio.get_running_loop()
            port = listener.getsockname()[1]
            ready.append((Front(port, grpc.port, services, loop), server))
            loop.call_soon(started.set)
            await server.serve([listener])
            await grpc.stop(1.0)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised where the test waits
            failed.append(error)
        started.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(120)
    if failed:
        raise failed[0]
    found, server = ready[0]
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the front end does not stop"
    assert not failed, failed


def of_callable(name: str, limits: Limits | None = None, **options: Any) -> Callable[[], Making]:
    """Return what serves a factory of `serve.callable.small_models`."""

    @asynccontextmanager
    async def services() -> AsyncIterator[Services]:
        model = CallableModel(make(f"serve.callable.small_models:{name}"))
        served = InProcess(model, limits or Limits(max_batch=4, max_delay_s=0.001))
        await served.warm()
        drain = Drain()
        settings = Settings(callable="x:y", port=0, **options)
        yield Services(
            settings=settings,
            metrics=Metrics("front-0"),
            health=Health(None, drain, 10.0),
            drain=drain,
            callable=served,
            fixed_model=Model(name, settings.version or "", 1),
        )
        await served.close()

    return services


def of_engine(folder: Path, **options: Any) -> Callable[[], Making]:
    """Return what serves a tiny engine."""

    @asynccontextmanager
    async def services() -> AsyncIterator[Services]:
        config = {"model": folder, "device": "cpu", "max_batch": 4, "kv_memory": "8MiB"}
        with Engine(EngineConfig.read({**config, "backend": "eager"})) as engine:
            versions = Versions(Version("first", str(folder), 1), tokenizer_folder=str(folder))
            link = LocalLink(Desk(engine, versions), "tiny")
            drain, tokens = Drain(), Tokens(lambda: engine.tokenizer)
            yield Services(
                settings=Settings(model=str(folder), port=0, **options),
                metrics=Metrics("front-0"),
                health=Health(link, drain, 10.0),
                drain=drain,
                link=link,
                tokens=tokens,
            )
            link.close()
            tokens.close()

    return services
