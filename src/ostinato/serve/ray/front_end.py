"""The front end as a Ray Serve deployment: the same application as `ostinato serve` has.

Ray's own HTTP proxy takes the requests and passes on every piece of an answer as it is written.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.serve.app import build
from ostinato.serve.drain import Drain
from ostinato.serve.features import more_routes, open_reason, watch_breaker
from ostinato.serve.health import Health
from ostinato.serve.metrics import Metrics
from ostinato.serve.ray.ray_link import RayLink
from ostinato.serve.services import Services
from ostinato.serve.settings import Settings
from ostinato.serve.slo import Breaker, declared
from ostinato.serve.tokens import Tokens

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ostinato.llm.tokenizer import Tokenizer


class LateApp:
    """An ASGI application that is made in the event loop that it runs in, when that begins."""

    def __init__(self, settings: Settings, engines: Any) -> None:
        self._settings = settings
        self._engines = engines
        self._app: ASGIApp | None = None
        self._link: RayLink | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or begin and end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        assert self._app is not None
        await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                await self._open()
                await send({"type": "lifespan.startup.complete"})
            else:
                self._close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _open(self) -> None:
        settings = self._settings
        link = RayLink(
            self._engines, load_tokenizer=_load_tokenizer, served_name=settings.served_name
        )
        await link.wait_up()
        drain, breaker = Drain(), Breaker(declared(settings.objectives))
        services = Services(
            settings=settings,
            metrics=Metrics("front-ray"),
            health=Health(
                link, drain, settings.progress_s, open_reason=lambda: open_reason(breaker)
            ),
            drain=drain,
            link=link,
            tokens=Tokens(lambda: link.tokenizer),
            breaker=breaker,
        )
        self._link = link
        self._watching = asyncio.get_running_loop().create_task(watch_breaker(breaker, services))
        self._app = build(services, more_routes(services))

    def _close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._link is not None:
            self._link.close()


async def _load_tokenizer(folder: str) -> Tokenizer | None:
    from ostinato.llm.tokenizer import Tokenizer as Reader

    return await asyncio.to_thread(Reader.load, Path(folder))


class FrontEnd:
    """What Ray makes of it.

    Args:
        settings: As `Settings.to_json` writes them.
        engines: The handle of the engines' deployment.
    """

    def __init__(self, settings: bytes, engines: Any) -> None:
        self._settings = Settings.from_json(settings)
        self._engines = engines

    def __serve_build_asgi_app__(self) -> LateApp:
        """Return the application; Ray calls it once."""
        return LateApp(self._settings, self._engines)
