"""Puts a front end together: which parts a service has, by its settings."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING

from ostinato.serve import embeddings, open_inference
from ostinato.serve.drain import Drain
from ostinato.serve.health import Health
from ostinato.serve.metrics import Metrics
from ostinato.serve.peers import Peers
from ostinato.serve.services import Model, Services
from ostinato.serve.slo import Breaker, declared
from ostinato.serve.socket_link import SocketLink
from ostinato.serve.telemetry import start as start_telemetry
from ostinato.serve.tokens import Tokens

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ostinato.llm.tokenizer import Tokenizer
    from ostinato.serve.callable import CallableService
    from ostinato.serve.open_inference.grpc_server import GrpcServer
    from ostinato.serve.settings import Settings
    from ostinato.serve.setup import Setup

_BREAKER_EVERY_S = 0.5
_GRPC_STOP_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Front:
    """A front end that is ready to answer.

    Attributes:
        routes: Of features beside OpenAI's text.
    """

    services: Services
    routes: list[BaseRoute]
    grpc: GrpcServer | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def loaded(self) -> None:
        """Wait until the modules that it started have been loaded for the first time.

        Raises:
            ResourceError: OST6056, one of them never will be.
        """
        from ostinato.serve.callable.client import CallableClient

        embedder = self.services.embedder
        for one in (self.services.callable, None if embedder is None else embedder.service):
            if isinstance(one, CallableClient):
                await one.wait_ready()

    async def close(self) -> None:
        """Give everything back."""
        if self.grpc is not None:
            await self.grpc.stop(_GRPC_STOP_S)
        await self._stack.aclose()


async def open_front(setup: Setup) -> Front:
    """Return what a front end needs.

    Raises:
        UsageError, ResourceError: Whatever is wrong with a module or a model that it starts.
    """
    settings = setup.settings
    stack = AsyncExitStack()
    metrics, drain = Metrics(setup.name), Drain()
    breaker = Breaker(declared(settings.objectives))
    link = None if settings.callable else _open_link(setup, drain, stack)
    callable_ = await _open_callable(setup, stack)
    embedder = await _open_embedder(setup, stack)
    peers = Peers(setup.metrics_socket, metrics.snapshot)
    await peers.start()
    stack.callback(peers.close)
    tokens = None
    if link is not None:
        tokens = Tokens(lambda: link.tokenizer)
        stack.callback(tokens.close)
    telemetry = None
    if settings.otel is not None:
        telemetry = start_telemetry(settings.otel, process=setup.name)
        stack.push_async_callback(asyncio.to_thread, telemetry.close)
    others = [] if callable_ is None else [callable_]
    if embedder is not None:
        others.append(embedder.service)
    services = Services(
        settings=settings,
        metrics=metrics,
        health=Health(
            link,
            drain,
            settings.progress_s,
            open_reason=lambda: open_reason(breaker) or _not_ready(others, settings.progress_s),
            others=lambda: _trouble(others, settings.progress_s),
        ),
        drain=drain,
        link=link,
        tokens=tokens,
        breaker=breaker,
        callable=callable_,
        embedder=embedder,
        fixed_model=_fixed_model(settings),
        peers=peers,
        telemetry=telemetry,
    )
    watching = asyncio.get_running_loop().create_task(watch_breaker(breaker, services))
    stack.callback(watching.cancel)
    front = Front(services, more_routes(services), _stack=stack)
    front.grpc = await _open_grpc(settings, services)
    return front


def more_routes(services: Services) -> list[BaseRoute]:
    """Return the routes of features beside OpenAI's text."""
    return [*open_inference.routes(services), *embeddings.routes(services)]


def _open_link(setup: Setup, drain: Drain, stack: AsyncExitStack) -> SocketLink:
    settings = setup.settings
    link = SocketLink(
        setup.engine_socket,
        restart_s=settings.restart_s,
        load_tokenizer=load_tokenizer,
        served_name=settings.served_name,
    )
    stack.callback(link.close)
    # Who waits to be let in is told, too, when a stop's time is up.
    drain.watch(link, link.fail_all)
    return link


async def _open_callable(setup: Setup, stack: AsyncExitStack) -> CallableService | None:
    settings = setup.settings
    if settings.callable is None:
        return None
    from ostinato.serve.callable import Limits, served

    limits = Limits(settings.max_batch, settings.max_delay_ms / 1e3, settings.max_waiting)
    share = Path(setup.run) / "callable.sock"
    return await stack.enter_async_context(
        served(
            settings.callable,
            limits=limits,
            wait=False,
            share=share,
            name=_name(settings),
            hang_s=settings.progress_s,
        )
    )


async def _open_embedder(setup: Setup, stack: AsyncExitStack) -> embeddings.Embedder | None:
    settings = setup.settings
    if settings.embedder is None:
        return None
    from ostinato.serve.callable import Limits

    return await stack.enter_async_context(
        embeddings.embedding_service(
            Path(settings.embedder),
            device=settings.engine.get("device", "auto"),
            limits=Limits(settings.max_batch, settings.max_delay_ms / 1e3, settings.max_waiting),
            wait=False,
            share=Path(setup.run) / "embedder.sock",
        )
    )


async def _open_grpc(settings: Settings, services: Services) -> GrpcServer | None:
    if settings.grpc_port is None:
        return None
    from ostinato.serve.open_inference.grpc_server import GrpcServer

    server = GrpcServer(services, settings.host, settings.grpc_port)
    await server.start()
    return server


def _fixed_model(settings: Settings) -> Model | None:
    if settings.callable is None:
        return None
    return Model(_name(settings), settings.version or "", int(time()))


def _name(settings: Settings) -> str:
    """Return what clients call the callable."""
    return settings.served_name or (settings.callable or "").rpartition(":")[2]


def _not_ready(others: list[CallableService], progress_s: float) -> str | None:
    trouble = _trouble(others, progress_s)
    if trouble is None and not all(one.is_ready for one in others):
        return "a model is being loaded"
    return trouble


def _trouble(others: list[CallableService], progress_s: float) -> str | None:
    return next(filter(None, (one.trouble(progress_s) for one in others)), None)


async def load_tokenizer(folder: str) -> Tokenizer | None:
    """Read a folder's tokenizer, off the event loop."""
    from ostinato.llm.tokenizer import Tokenizer as Reader

    return await asyncio.to_thread(partial(Reader.load, Path(folder)))


def open_reason(breaker: Breaker) -> str | None:
    """Return why the breaker wants no more requests; None while it does."""
    if breaker.is_ready(monotonic()):
        return None
    return "the promised times are not kept, and all is shed that may be"


async def watch_breaker(breaker: Breaker, services: Services) -> None:
    """Keep the metrics of the breaker and of the model's version as they are, and log changes."""
    metrics = services.metrics
    known = None
    while True:
        now = monotonic()
        metrics.breaker(breaker.state(now), breaker.rung, breaker.burns(now))
        for change in breaker.take_changes():
            _log.warning("the breaker changed", extra={"change": str(change)})
        model = services.model
        if model != known and model.version:
            metrics.model(model.name, model.version)
            known = model
        await asyncio.sleep(_BREAKER_EVERY_S)
