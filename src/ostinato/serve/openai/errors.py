"""Errors in OpenAI's shape, and which status each of ours has.

Shed load is 429 with a wait that was measured; 503 is kept for a server that is stopping or broken,
because balancers take a server that answers 503 out of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from ostinato.errors import OstinatoError, UsageError
from ostinato.llm.refusals import PromptTooLong, QueueFull
from ostinato.serve.wire import Problem

_BY_KIND = {
    "usage": (400, "invalid_request_error"),
    "full": (429, "rate_limit_error"),
    "busy": (409, "conflict_error"),
    "down": (503, "service_unavailable"),
    "internal": (500, "server_error"),
}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "server_error",
    503: "service_unavailable",
}
_WORDS = {"OST5002": "context_length_exceeded", "OST5101": "queue_full"}
"""Codes that clients of OpenAI know by another word."""


class HttpProblem(Exception):
    """A request is answered with an error.

    Attributes:
        status: Of HTTP.
        param: Which field of the request is wrong.
        code: A word for programs.
        retry_s: After how long it is worth trying again.
        closes: Whether the connection is of no more use.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_s: float | None = None,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.retry_s, self.closes = retry_s, closes

    @property
    def body(self) -> bytes:
        """The error as it is sent."""
        return body(str(self), _TYPES.get(self.status, "server_error"), self.param, self.code)

    def response(self) -> Response:
        """Return the answer."""
        headers: dict[str, str] = {}
        if self.retry_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_s)))
        if self.closes:
            headers["connection"] = "close"
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(self.body, self.status, headers, "application/json")


def body(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    """Return an error as OpenAI writes it."""
    error: Mapping[str, str | None] = {
        "message": message,
        "type": kind,
        "param": param,
        "code": code,
    }
    return msgspec.json.encode({"error": error})


def of_problem(problem: Problem) -> HttpProblem:
    """Return the answer to a request that the engine refused."""
    status, _ = _BY_KIND[problem.kind]
    return HttpProblem(
        status,
        f"{problem.message}; {problem.remedy}",
        code=_WORDS.get(problem.code, problem.code),
        retry_s=problem.retry_s,
    )


def of_error(error: OstinatoError) -> HttpProblem:
    """Return the answer to a request that was refused here."""
    if isinstance(error, QueueFull):
        status = 429
    else:
        status = 400 if isinstance(error, UsageError | PromptTooLong) else 500
    return HttpProblem(
        status, f"{error.args[0]}; {error.remedy}", code=_WORDS.get(error.code, error.code)
    )


def event(problem: Problem) -> bytes:
    """Return the last frame of a stream that ends in an error."""
    _, kind = _BY_KIND[problem.kind]
    word = _WORDS.get(problem.code, problem.code)
    return b"data: " + body(f"{problem.message}; {problem.remedy}", kind, None, word) + b"\n\n"
