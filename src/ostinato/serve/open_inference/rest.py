"""The protocol over HTTP: `/v2`, health, metadata, `infer`, `generate` and `generate_stream`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.serve.open_inference.generate import generate, generate_stream
from ostinato.serve.open_inference.models import find_model, model_of
from ostinato.serve.open_inference.refusals import Refusal
from ostinato.serve.open_inference.rest_bodies import HEADER, read_infer, write_infer
from ostinato.serve.talk import watch

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.open_inference.metadata import InferenceModel
    from ostinato.serve.services import Services

SERVER: Final = "ostinato"
EXTENSIONS: Final = ("binary_tensor_data", "generate", "schedule_policy")
_LARGE: Final = 64 * 1024
"""A body from this size on is read in a thread."""

Handler = Callable[["Services", "Request"], Awaitable[Response]]


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes."""
    asked: list[tuple[str, str, Handler]] = [
        ("GET", "/v2", _server),
        ("GET", "/v2/", _server),
        ("GET", "/v2/health/live", _live),
        ("GET", "/v2/health/ready", _ready),
    ]
    for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        asked += [
            ("GET", base, _model),
            ("GET", f"{base}/ready", _model_ready),
            ("POST", f"{base}/infer", _infer),
            ("POST", f"{base}/generate", generate),
            ("POST", f"{base}/generate_stream", generate_stream),
        ]
    return [
        Route(path, _bound(services, handler), methods=[method]) for method, path, handler in asked
    ]


def _bound(services: Services, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await handler(services, request)
        except Refusal as refusal:
            return refusal.response()

    return answer


async def _server(services: Services, request: Request) -> Response:
    return _json({"name": SERVER, "version": version("ostinato"), "extensions": list(EXTENSIONS)})


async def _live(services: Services, request: Request) -> Response:
    return Response(status_code=200)


async def _ready(services: Services, request: Request) -> Response:
    return Response(status_code=200 if is_server_ready(services) else 503)


def is_server_ready(services: Services) -> bool:
    """Whether all models of this server can be asked."""
    try:
        return services.health.ready().is_good and model_of(services).is_ready()
    except Refusal:
        return False


async def _model_ready(services: Services, request: Request) -> Response:
    try:
        is_ready = _asked_model(services, request).is_ready()
    except Refusal as refusal:
        if refusal.status != 503:
            raise
        is_ready = False
    return Response(status_code=200 if is_ready else 503)


async def _model(services: Services, request: Request) -> Response:
    told = _asked_model(services, request).metadata()
    return _json(
        {
            "name": told.name,
            "versions": [told.version],
            "platform": told.platform,
            "inputs": _tensors(told.inputs),
            "outputs": _tensors(told.outputs),
            "properties": told.properties,
        }
    )


def _tensors(tensors: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": datatype, "shape": shape}
        for name, (datatype, shape) in tensors.items()
    ]


async def _infer(services: Services, request: Request) -> Response:
    model = _asked_model(services, request)
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "this server reads bodies as they are, not compressed")
    body = await request.body()
    json_bytes = request.headers.get(HEADER)
    if len(body) < _LARGE:
        asked = read_infer(body, json_bytes)
    else:
        asked = await asyncio.to_thread(read_infer, body, json_bytes)
    gone = watch(request) if services.callable is not None else None
    try:
        reply = await model.infer(asked.request, request)
    finally:
        if gone is not None:
            gone.cancel()
    if sum(len(array.data) for array in reply.outputs.values()) < _LARGE:
        content, headers = write_infer(reply, asked)
    else:
        content, headers = await asyncio.to_thread(write_infer, reply, asked)
    return Response(content, 200, headers)


def _asked_model(services: Services, request: Request) -> InferenceModel:
    named = request.path_params
    return find_model(services, named["model"], named.get("version", ""))


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
