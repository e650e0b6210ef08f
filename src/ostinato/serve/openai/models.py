"""`/v1/models`: what is served, and with which weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.naming import known_model

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services


async def models(services: Services, request: Request) -> Response:
    """List what is served."""
    return _json({"object": "list", "data": [_model(services)]})


async def model(services: Services, request: Request) -> Response:
    """Describe one model."""
    wanted = request.path_params["name"]
    known = _model(services)
    if wanted != known["id"]:
        raise HttpProblem(
            404, f"there is no model {wanted!r:.120} here", param="model", code="model_not_found"
        )
    return _json(known)


def _model(services: Services) -> dict[str, Any]:
    served = known_model(services)
    told: dict[str, Any] = {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "ostinato",
    }
    # A callable has no length, and no version until it has been loaded.
    if served.version:
        told["version"] = served.version
    if served.max_model_len:
        told["max_model_len"] = served.max_model_len
    return told


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
