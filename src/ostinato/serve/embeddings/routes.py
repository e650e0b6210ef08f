"""`/v1/embeddings`, as OpenAI's clients ask for it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ostinato.errors import OstinatoError
from ostinato.serve.callable import Fault, fault_of
from ostinato.serve.callable.faults import Full
from ostinato.serve.openai.errors import HttpProblem, of_error
from ostinato.serve.openai.reading import read
from ostinato.serve.talk import watch

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.embeddings.embedder import Embedder, Text
    from ostinato.serve.services import Services

_MOST_TEXTS = 2048
_MANY_NUMBERS = 16 * 1024
_STATUS = {Fault.FULL: 429, Fault.LATE: 504, Fault.BROKEN: 503, Fault.CLOSING: 503}


_IDS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
_TEXT = {"type": "string"}
_INPUTS = [
    _TEXT,
    _IDS,
    *(
        {"type": "array", "items": one, "minItems": 1, "maxItems": _MOST_TEXTS}
        for one in (_TEXT, _IDS)
    ),
]


class EmbeddingRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What may be asked for.

    Attributes:
        input: A text, token ids, or a list of either.
        dimensions: Fewer than the model has: the first ones, made of length 1 again.
        priority: The smaller, the sooner; ours alone.
    """

    names: ClassVar[dict[str, str]] = {"prompt": "input"}

    input: Annotated[Any, Meta(extra_json_schema={"anyOf": _INPUTS})]
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    priority: int = 0


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes."""

    async def answer(request: Request) -> Response:
        return await embed(services, request)

    return [Route("/v1/embeddings", answer, methods=["POST"])]


async def embed(services: Services, request: Request) -> Response:
    """Answer with the vectors of texts."""
    embedder: Embedder | None = services.embedder
    if embedder is None:
        raise HttpProblem(
            404, "this server serves no model that makes embeddings; start it with --embedder"
        )
    asked = await read(request, EmbeddingRequest)
    facts = embedder.facts
    if asked.model != facts.name:
        raise HttpProblem(
            404,
            f"there is no model {asked.model!r:.120} for embeddings; there is {facts.name!r}",
            param="model",
            code="model_not_found",
        )
    if asked.dimensions is not None and not 1 <= asked.dimensions <= facts.dimensions:
        raise HttpProblem(
            400,
            f"dimensions must be from 1 to {facts.dimensions}, got {asked.dimensions}",
            param="dimensions",
        )
    texts = texts_of(asked.input)
    began, reason = monotonic(), "abort"
    services.metrics.request_began("embedding")
    gone = watch(request)
    try:
        found = await embedder.embed(texts, priority=asked.priority)
        reason = "stop"
    except OstinatoError as error:
        reason = "error"
        raise _problem(services, error) from error
    finally:
        gone.cancel()
        services.metrics.request_ended(reason, monotonic() - began, None, kind="embedding")
    vectors = shortened(found.vectors, asked.dimensions)
    write = partial(_body, vectors, asked.encoding_format, facts.name, found.tokens)
    body = write() if vectors.size < _MANY_NUMBERS else await asyncio.to_thread(write)
    return Response(body, media_type="application/json")


def texts_of(given: object) -> list[Text]:
    """Return the texts of a request.

    Raises:
        HttpProblem: 400, there are none, too many, or they are mixed.
    """
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given or len(given) > _MOST_TEXTS:
        raise _input(f"a text, token ids, or a list of 1 to {_MOST_TEXTS} of either")
    if all(map(_is_token, given)):
        return [given]
    if all(isinstance(one, str) for one in given):
        return list(given)
    if all(isinstance(one, list) and all(map(_is_token, one)) for one in given):
        return list(given)
    raise _input("texts alone, or lists of token ids alone")


def _is_token(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool)


def _input(wanted: str) -> HttpProblem:
    return HttpProblem(400, f"input must be {wanted}", param="input", code="invalid_field")


def shortened(vectors: np.ndarray, dimensions: int | None) -> np.ndarray:
    """Return vectors cut to their first dimensions, of length 1 again."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    short = vectors[:, :dimensions]
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    whole: np.ndarray = np.divide(short, lengths, out=np.zeros_like(short), where=lengths > 0)
    return whole


def _body(vectors: np.ndarray, encoding_format: str, model: str, tokens: int) -> bytes:
    data: Sequence[dict[str, Any]] = [
        {
            "object": "embedding",
            "index": place,
            "embedding": base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()
            if encoding_format == "base64"
            else vector.tolist(),
        }
        for place, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "model": model, "data": data, "usage": usage})


def _problem(services: Services, error: OstinatoError) -> HttpProblem:
    fault = fault_of(error)
    if error.code == "OST6063" or fault not in _STATUS:
        return of_error(error)
    if fault is Fault.FULL:
        services.metrics.shed("queue-full")
    retry_s = error.retry_s if isinstance(error, Full) else None
    said = f"{error.args[0]}; {error.remedy}"
    return HttpProblem(_STATUS[fault], said, code=error.code, retry_s=retry_s)
