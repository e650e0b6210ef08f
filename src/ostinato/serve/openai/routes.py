"""Which of OpenAI's paths there are, and who answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.serve.openai.chat import chat
from ostinato.serve.openai.completions import complete
from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.models import model, models
from ostinato.serve.openai.responses import respond
from ostinato.serve.openai.tokenise import detokenize, tokenize

if TYPE_CHECKING:
    from ostinato.serve.services import Services

Handler = Callable[["Services", Request], Awaitable[Response]]


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes."""
    asked = {
        "/v1/chat/completions": chat,
        "/v1/completions": complete,
        "/v1/responses": respond,
        "/tokenize": tokenize,
        "/detokenize": detokenize,
    }
    return [
        *(
            Route(path, bound_to_engine(services, handler), methods=["POST"])
            for path, handler in asked.items()
        ),
        Route("/v1/models", bound(services, models), methods=["GET"]),
        Route("/v1/models/{name:path}", bound(services, model), methods=["GET"]),
    ]


def bound(services: Services, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler as Starlette calls it."""

    async def answer(request: Request) -> Response:
        return await handler(services, request)

    return answer


def bound_to_engine(
    services: Services, handler: Handler
) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that asks an engine; 404 where none is served, whatever the body says."""
    if services.link is not None:
        return bound(services, handler)

    async def refuse(request: Request) -> Response:
        raise HttpProblem(
            404, "this server serves no model that writes text; /v1/models says what it serves"
        )

    return refuse
