"""Reads the body of a request: JSON into a struct, or a refusal that names the field."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ostinato.serve.openai.errors import HttpProblem

if TYPE_CHECKING:
    from starlette.requests import Request

_LARGE = 64 * 1024
"""A body from this size on is read in a thread."""
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_FIELD = re.compile(r"unknown field `([^`]*)`|missing required field `([^`]*)`")
_Body = TypeVar("_Body")


async def read(request: Request, kind: type[_Body]) -> _Body:
    """Return the body as `kind`.

    Raises:
        HttpProblem: 415, it is no JSON by its own word; 400, it is no JSON, or has a field that
            does not exist or is of the wrong type.
    """
    said = request.headers.get("content-type", "application/json")
    if "json" not in said.lower():
        raise HttpProblem(415, f"a body must be application/json, got {said[:80]!r}")
    body = await request.body()
    decode = msgspec.json.Decoder(kind).decode
    try:
        if len(body) < _LARGE:
            return decode(body)
        return await asyncio.to_thread(decode, body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpProblem(400, f"the body is no JSON: {error}", code="invalid_json") from error
    except RecursionError as error:
        raise HttpProblem(
            400, "the body nests too deeply to be read", code="invalid_json"
        ) from error


def _invalid(problem: str) -> HttpProblem:
    path = _PATH.search(problem)
    field = _FIELD.search(problem)
    param = path.group(1) if path else None
    if field and not param:
        param = field.group(1) or field.group(2)
    return HttpProblem(400, problem, param=param or None, code="invalid_field")
