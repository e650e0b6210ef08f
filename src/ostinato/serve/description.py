"""`/openapi.json`: what can be asked, written from the structs that read the requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.serve.operations import Answer, Operation, operations

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services

_PART = re.compile(r"\{(\w+)\}")
_BYTES = {"type": "string", "format": "binary"}
_SCHEMAS: Mapping[str, dict[str, Any]] = MappingProxyType(
    # Of events none: OpenAPI 3.1 does not say whether a schema is of the text or of each event.
    {
        "application/json": {"type": "object"},
        "application/octet-stream": _BYTES,
        "text/plain": {"type": "string"},
    }
)
_TEXT_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}},
}
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


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the description, as OpenAPI 3.1 writes it."""
    bodies = list(dict.fromkeys(each.body for each in operations if each.body is not None))
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
            "schemas": components | {"Error": _ERROR, "TextError": _TEXT_ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(each: Operation, by_body: dict[type, dict[str, Any]]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": f"{each.method}{each.path}",
        "summary": each.summary,
        "responses": {
            "200": {"description": "done", **_content(each.answer)},
            "default": {"description": "refused, and why", **_refusal(each)},
        },
        "security": [] if each.is_open else [{"key": []}, {}],
    }
    if each.body is not None:
        bodies = {"application/json": {"schema": by_body[each.body]}}
        if each.answer is Answer.TENSORS:
            bodies["application/octet-stream"] = {"schema": _BYTES}
        said["requestBody"] = {"required": True, "content": bodies}
    parts = [{"name": name, "in": "path", "required": True} for name in _PART.findall(each.path)]
    if parts:
        text = {"type": "string", "minLength": 1}
        said["parameters"] = [{**part, "schema": text} for part in parts]
    return said


def _content(answer: Answer) -> dict[str, Any]:
    content = {kind: {"schema": _SCHEMAS.get(kind, {})} for kind in answer.value}
    return {"content": content} if content else {}


def _refusal(each: Operation) -> dict[str, Any]:
    """Return how an operation is refused: `/v2` has a shape of its own, but for keys and limits."""
    if each.answer is Answer.NOTHING and each.is_open:
        return {}
    error: dict[str, Any] = {"$ref": "#/components/schemas/Error"}
    if each.path.startswith("/v2"):
        error = {"anyOf": [error, {"$ref": "#/components/schemas/TextError"}]}
    elif each.is_open:
        error = {"type": "object"}
    return {"content": {"application/json": {"schema": error}}}


def routes(services: Services) -> list[BaseRoute]:
    """Return the route."""
    written = msgspec.json.encode(describe(operations(services)))

    async def answer(request: Request) -> Response:
        return Response(written, media_type="application/json")

    return [Route("/openapi.json", answer, methods=["GET"])]
