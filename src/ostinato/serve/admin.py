"""`/admin/*`: change the weights, go back, record a trace. Needs a key of its own (`gate`)."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.serve.answers import Refused
from ostinato.serve.openai.errors import HttpProblem, of_problem
from ostinato.serve.openai.reading import read
from ostinato.serve.openai.routes import bound_to_engine
from ostinato.serve.talk import watch

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services


class WeightsRequest(Struct, forbid_unknown_fields=True):
    """The body of `/admin/weights`: new ones, or a step back.

    Attributes:
        folder: Where they lie, on the server.
        version: How to call them.
        in_flight: "finish": running requests go on; "restart": theirs are computed anew.
    """

    folder: str | None = None
    version: str | None = None
    rollback: bool = False
    in_flight: Literal["finish", "restart"] = "finish"


class ProfileRequest(Struct, forbid_unknown_fields=True):
    """The body of `/admin/profile`."""

    steps: int = 20
    timeout_s: float = 30.0


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes."""
    return [
        Route("/admin/weights", bound_to_engine(services, weights), methods=["POST"]),
        Route("/admin/profile", bound_to_engine(services, profile), methods=["POST"]),
        Route("/admin/counts", bound_to_engine(services, counts), methods=["GET"]),
    ]


async def weights(services: Services, request: Request) -> Response:
    """Change the weights in place; requests go on, nothing is recorded anew."""
    asked = await read(request, WeightsRequest)
    if asked.rollback:
        if asked.folder is not None or asked.version is not None:
            raise HttpProblem(400, "a rollback goes to the weights before; leave out the rest")
        return await _ask(services, request, "rollback", in_flight=asked.in_flight)
    if asked.folder is None or asked.version is None:
        raise HttpProblem(400, "give folder and version, or rollback: true", param="folder")
    return await _ask(
        services,
        request,
        "update_weights",
        folder=asked.folder,
        label=asked.version,
        in_flight=asked.in_flight,
    )


async def profile(services: Services, request: Request) -> Response:
    """Record some steps to a trace."""
    asked = await read(request, ProfileRequest)
    if not 0 < asked.timeout_s <= 300:
        raise HttpProblem(400, "timeout_s must be from 0 to 300", param="timeout_s")
    folder = str(Path(gettempdir()) / "ostinato-traces")
    return await _ask(
        services, request, "profile", steps=asked.steps, folder=folder, timeout_s=asked.timeout_s
    )


async def counts(services: Services, request: Request) -> Response:
    """Tell how the engine stands."""
    return await _ask(services, request, "counts")


async def _ask(services: Services, request: Request, name: str, **values: Any) -> Response:
    assert services.link is not None
    await request.body()
    watching = watch(request)
    try:
        told = await services.link.ask(name, **values)
    except Refused as refused:
        raise of_problem(refused.problem) from refused
    finally:
        watching.cancel()
    return Response(msgspec.json.encode(told), media_type="application/json")
