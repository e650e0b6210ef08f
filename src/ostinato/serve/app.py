"""The front end as one ASGI application: all features' routes behind one gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from ostinato.serve import admin, description, health_routes
from ostinato.serve.gate import Gate
from ostinato.serve.openai import routes as openai
from ostinato.serve.ui import routes as page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from ostinato.serve.services import Services


def build(services: Services, more: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application.

    Args:
        more: Routes of features that not every service has.
    """
    routes = [
        *health_routes.routes(services),
        *openai.routes(services),
        *admin.routes(services),
        *description.routes(services),
        *page(services),
        *more,
    ]
    middleware = [Middleware(Gate, services)]
    origins = services.settings.cors_origins
    if origins:
        # Outside the gate: a browser asks first without a key, and must be able to read refusals.
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            # Whatever is asked for: clients send headers of their own with every call, such as
            # X-Stainless-OS, OpenAI-Project and traceparent. No cookie opens anything here.
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
        middleware.insert(0, cors)
    return Starlette(
        routes=routes,
        middleware=middleware,
        # No traceback for a client; the gate answers what nobody here foresaw.
        exception_handlers={404: _problem, 405: _problem, Exception: _problem},
    )


async def _problem(request: Request, error: Exception) -> Response:
    raise error
