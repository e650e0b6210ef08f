"""`/ui`: one page that shows the service at work, and a small box to talk to it.

There is no build step and nothing from elsewhere: one HTML file, one style sheet and a few scripts,
sent as they lie here. The browser is told to run nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from time import time
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.serve.metrics import add_up
from ostinato.serve.ui.numbers import numbers

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_FILES = ("page.html", "page.css", "page.js", "window.js", "charts.js", "chat.js")
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the page, of its parts and of its numbers."""
    folder = files(__name__)
    contents = {name: (folder / name).read_bytes() for name in _FILES}
    parts = [
        Route(f"/ui/{name}", _file(name, content), methods=["GET"])
        for name, content in contents.items()
        if name != "page.html"
    ]
    return [
        Route("/ui", _file("page.html", contents["page.html"]), methods=["GET"]),
        *parts,
        Route("/ui/numbers", _numbers(services), methods=["GET"]),
    ]


def _file(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=_TYPES[name.rpartition(".")[2]])

    return answer


def _numbers(services: Services) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        peers = services.peers
        snapshots = [services.metrics.snapshot()] if peers is None else await peers.gather()
        document = numbers(add_up(snapshots), time(), services.health.ready().why)
        return Response(
            msgspec.json.encode(document),
            headers={"cache-control": "no-store"},
            media_type="application/json",
        )

    return answer
