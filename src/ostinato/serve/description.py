"""`/openapi.json`: what can be asked, written from the structs that read the requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.serve import admin
from ostinato.serve.openai.fields import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from ostinato.serve.openai.response_fields import ResponseRequest

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked.

    Attributes:
        body: What reads the request's body; None if it has none.
        is_stream: Whether it may be answered with events.
        is_open: Whether it needs no key.
        parameter: The name of a part of the path.
    """

    method: str
    path: str
    summary: str
    body: type | None = None
    is_stream: bool = False
    is_open: bool = False
    parameter: str | None = None


OPERATIONS = (
    Operation("post", "/v1/chat/completions", "Answer a conversation", ChatRequest, is_stream=True),
    Operation("post", "/v1/completions", "Go on from prompts", CompletionRequest, is_stream=True),
    Operation("post", "/v1/responses", "Answer a text", ResponseRequest, is_stream=True),
    Operation("get", "/v1/models", "List what is served"),
    Operation("get", "/v1/models/{name}", "Describe a model", parameter="name"),
    Operation("post", "/tokenize", "Tokens of a text", TokenizeRequest),
    Operation("post", "/detokenize", "Text of tokens", DetokenizeRequest),
    Operation("get", "/livez", "Whether the process is alive", is_open=True),
    Operation("get", "/readyz", "Whether to send requests here", is_open=True),
    Operation("get", "/healthz", "Whether work moves", is_open=True),
    Operation("post", "/admin/weights", "Change the weights, or go back", admin.WeightsRequest),
    Operation("post", "/admin/profile", "Record steps to a trace", admin.ProfileRequest),
    Operation("get", "/admin/counts", "How the engine stands"),
)


def describe(operations: Sequence[Operation] = OPERATIONS) -> dict[str, Any]:
    """Return the description, as OpenAPI 3.1 writes it."""
    bodies = [each.body for each in operations if each.body is not None]
    schemas, components = msgspec.json.schema_components(
        bodies, ref_template="#/components/schemas/{name}"
    )
    by_body = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method] = _operation(each, by_body)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ostinato", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": components | {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(each: Operation, by_body: dict[type, dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if each.is_stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    refusal = {"type": "object"} if each.is_open else {"$ref": "#/components/schemas/Error"}
    said: dict[str, Any] = {
        "operationId": f"{each.method}{each.path}",
        "summary": each.summary,
        "responses": {
            "200": {"description": "done", "content": content},
            "default": {
                "description": "refused, and why",
                "content": {"application/json": {"schema": refusal}},
            },
        },
        "security": [] if each.is_open else [{"key": []}, {}],
    }
    if each.body is not None:
        body = {"application/json": {"schema": by_body[each.body]}}
        said["requestBody"] = {"required": True, "content": body}
    if each.parameter is not None:
        part = {"name": each.parameter, "in": "path", "required": True}
        said["parameters"] = [{**part, "schema": {"type": "string", "minLength": 1}}]
    return said


def routes(services: Services) -> list[BaseRoute]:
    """Return the route."""
    written = msgspec.json.encode(describe())

    async def answer(request: Request) -> Response:
        return Response(written, media_type="application/json")

    return [Route("/openapi.json", answer, methods=["GET"])]
