"""A process that speaks HTTP: `python -m ostinato.serve.front_process`. It holds no model."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from ostinato.errors import OstinatoError
from ostinato.serve import features, logs
from ostinato.serve.app import build
from ostinato.serve.collector import set_loaded_aside
from ostinato.serve.http_guard import guarded
from ostinato.serve.metrics.waits import GilWatch, watch_loop
from ostinato.serve.setup import Setup, read_setup, tell_stacks, watch_parent

if TYPE_CHECKING:
    from ostinato.serve.features import Front

EXIT_SETUP = 2
_TO_CLOSE_S = 2
_log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """uvicorn, which would rather catch signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to us: a stop waits for open answers first."""
        yield


async def serve(setup: Setup) -> None:
    """Answer until told to stop, and then until everybody has been answered, within the bound."""
    settings = setup.settings
    front = await features.open_front(setup)
    config = uvicorn.Config(
        build(front.services, front.routes),
        http=guarded(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(settings.keep_alive_s),
        timeout_graceful_shutdown=_TO_CLOSE_S,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    server = _Server(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    watch_parent(partial(loop.call_soon_threadsafe, stop.set))
    gil = GilWatch(front.services.metrics.gil_wait)
    gil.start()
    loading = loop.create_task(_load(front, server))
    background = [
        loading,
        loop.create_task(watch_loop(front.services.metrics.loop_lag)),
        loop.create_task(_stop(stop, front, server, settings.drain_s)),
    ]
    set_loaded_aside()
    await server.serve([socket.socket(fileno=setup.listen)])
    gil.stop()
    for task in background:
        task.cancel()
    await front.close()
    if loading.done() and not loading.cancelled():
        loading.result()  # what cannot be loaded is no service


async def _load(front: Front, server: uvicorn.Server) -> None:
    """Stop the server when what it serves can never be loaded."""
    try:
        await front.loaded()
    except OstinatoError:
        server.should_exit = True
        raise


async def _stop(stop: asyncio.Event, front: Front, server: uvicorn.Server, bound_s: float) -> None:
    await stop.wait()
    drain = front.services.drain
    _log.info("stopping", extra={"open_requests": drain.open_requests})
    is_clean = await drain.run(bound_s)
    _log.info("drained", extra={"all_answered": is_clean})
    server.should_exit = True


def main() -> int:
    """Run the process."""
    tell_stacks()
    setup = read_setup()
    logs.set_up(setup.settings, setup.name)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(setup))
    except OstinatoError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SETUP
    return 0


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # optional: it does not build everywhere
        return None
    factory: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return factory


if __name__ == "__main__":
    sys.exit(main())
