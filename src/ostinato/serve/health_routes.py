"""`/livez`, `/readyz`, `/healthz` and `/metrics`, for the machines that look after this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.serve.health import Verdict

if TYPE_CHECKING:
    from ostinato.serve.services import Services

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes."""
    health = services.health
    return [
        Route("/livez", _answer(health.live), methods=["GET"]),
        Route("/readyz", _answer(health.ready), methods=["GET"]),
        Route("/healthz", _answer(health.progress), methods=["GET"]),
        Route("/metrics", _metrics(services), methods=["GET"]),
    ]


def _answer(judge: Callable[[], Verdict]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        verdict = judge()
        said = {"status": "ok" if verdict.is_good else "unavailable", "why": verdict.why}
        return Response(
            msgspec.json.encode(said),
            200 if verdict.is_good else 503,
            media_type="application/json",
        )

    return answer


def _metrics(services: Services) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        from ostinato.serve.metrics import merge

        peers = services.peers
        snapshots = [services.metrics.snapshot()] if peers is None else await peers.gather()
        return Response(merge(snapshots), media_type=_METRICS_TYPE)

    return answer
