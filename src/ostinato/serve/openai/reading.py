"""Reads the body of a request: JSON into a struct, or a refusal that names the field."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ostinato.serve.openai import wording
from ostinato.serve.openai.errors import HttpProblem

if TYPE_CHECKING:
    from starlette.requests import Request

_LARGE = 64 * 1024
"""A body from this size on is read in a thread."""
_Body = TypeVar("_Body")


async def read(request: Request, kind: type[_Body]) -> _Body:
    """Return the body as `kind`.

    What later refuses the request's prompt or schema finds in the scope what `kind` calls these.

    Raises:
        HttpProblem: 415, it is no JSON by its own word; 400, it is no JSON, or has a field that
            does not exist or is of the wrong type.
    """
    said = request.headers.get("content-type", "application/json")
    if "json" not in said.lower():
        raise HttpProblem(
            415, f"a body must be application/json, got {said[:80]!r}; set the header content-type"
        )
    packed = request.headers.get("content-encoding", "identity")
    if packed.lower() != "identity":
        raise HttpProblem(
            415, f"a body packed with {packed[:40]!r} is not read; send it as plain JSON"
        )
    request.scope["ostinato.names"] = getattr(kind, "names", {})
    body = await request.body()
    if len(body) < _LARGE:
        return _decoded(body, kind)
    return await asyncio.to_thread(_decoded, body, kind)


def _decoded(body: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.Decoder(kind).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem, param = wording.of_body(error, kind, body)
        is_json = isinstance(wording.first_fault(error, body), msgspec.ValidationError)
        code = "invalid_field" if is_json else "invalid_json"
        raise HttpProblem(400, problem, param=param, code=code) from error
