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
from ostinato.serve.openai.schema_words import in_our_words, line_of
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
        methods: Those that the path takes, where it was asked by another.
        line: Of a grammar that the request's fields became, where it is about one of them.
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
        self.line: int | None = None
        self.methods: str | None = None

    @property
    def body(self) -> bytes:
        """The error as it is sent."""
        return body(str(self), _TYPES.get(self.status, "server_error"), self.param, self.code)

    def response(self, written: bytes | None = None) -> Response:
        """Return the answer.

        Args:
            written: Its body in the shape of another protocol; None: `body`.
        """
        headers: dict[str, str] = {}
        if self.retry_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_s)))
        if self.closes:
            headers["connection"] = "close"
        if self.methods is not None:
            headers["allow"] = self.methods
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        content = self.body if written is None else written
        return Response(content, self.status, headers, "application/json")


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
    told = HttpProblem(
        status,
        said(problem),
        code=_WORDS.get(problem.code, problem.code),
        retry_s=problem.retry_s,
    )
    told.line = line_of(problem.message) if problem.code == "OST5062" else None
    return told


def of_error(error: OstinatoError) -> HttpProblem:
    """Return the answer to a request that was refused here."""
    if isinstance(error, QueueFull):
        status = 429
    else:
        status = 400 if isinstance(error, UsageError | PromptTooLong) else 500
    return HttpProblem(
        status,
        f"{in_our_words(error.code, str(error.args[0]))}; {error.remedy}",
        code=_WORDS.get(error.code, error.code),
    )


def said(problem: Problem) -> str:
    """Return a problem as a sentence for clients."""
    return f"{in_our_words(problem.code, problem.message)}; {problem.remedy}"


def event(problem: Problem) -> bytes:
    """Return the last frame of a stream that ends in an error."""
    _, kind = _BY_KIND[problem.kind]
    word = _WORDS.get(problem.code, problem.code)
    return b"data: " + body(said(problem), kind, None, word) + b"\n\n"
