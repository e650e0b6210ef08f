"""How a request of the Open Inference Protocol is refused: a status of HTTP, or of gRPC, and words.

Shed load is 429 or RESOURCE_EXHAUSTED; 503 or UNAVAILABLE is kept for a server that is stopping, or
whose model is gone, because balancers take one that says so out of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from starlette.responses import Response

from ostinato.errors import OstinatoError
from ostinato.serve.callable import Fault, fault_of
from ostinato.serve.callable.faults import Full
from ostinato.serve.openai.errors import HttpProblem, of_error

_STATUS: Final[Mapping[Fault, int]] = MappingProxyType(
    {
        Fault.REFUSED: 400,
        Fault.FULL: 429,
        Fault.LATE: 504,
        Fault.FAILED: 500,
        Fault.BROKEN: 503,
        Fault.CLOSING: 503,
    }
)
_GRPC: Final[Mapping[int, str]] = MappingProxyType(
    {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        404: "NOT_FOUND",
        413: "INVALID_ARGUMENT",
        415: "INVALID_ARGUMENT",
        422: "INVALID_ARGUMENT",
        424: "INTERNAL",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }
)


class Refusal(Exception):
    """A request is not answered.

    Attributes:
        status: Of HTTP.
        retry_s: After how long it is worth trying again.
    """

    def __init__(self, status: int, said: str, retry_s: float | None = None) -> None:
        super().__init__(said)
        self.status, self.retry_s = status, retry_s

    @property
    def grpc_status(self) -> str:
        """The name of gRPC's status."""
        return _GRPC.get(self.status, "INTERNAL")

    def response(self) -> Response:
        """Return the answer over HTTP, in the protocol's shape."""
        headers = {}
        if self.retry_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_s)))
        return Response(_written(self), self.status, headers, "application/json")


def _written(error: Exception) -> bytes:
    return msgspec.json.encode({"error": str(error)})


def body_of(problem: HttpProblem, path: str) -> bytes:
    """Return the body of an answer to a request for `path`, in the shape of that path's protocol.

    For what is refused before, or beside, the protocol's own routes.
    """
    is_ours = path == "/v2" or path.startswith("/v2/")
    return _written(problem) if is_ours else problem.body


def malformed(problem: str) -> Refusal:
    """Return the refusal of a request that is no request."""
    return Refusal(400, problem)


def no_model(wanted: str, version: str, name: str, known: str) -> Refusal:
    """Return the refusal of a request for a model that is not here."""
    of_version = f" of version {version!r:.60}" if version else ""
    return Refusal(
        404,
        f"there is no model {wanted!r:.120}{of_version} here, but {name!r} of version {known!r}",
    )


def refusal_of(error: OstinatoError | HttpProblem) -> Refusal:
    """Return the refusal that says what `error` says."""
    if isinstance(error, HttpProblem):
        return Refusal(error.status, str(error), error.retry_s)
    said = f"{error.args[0]}; {error.remedy} ({error.code})"
    if error.code.startswith("OST605"):
        retry_s = error.retry_s if isinstance(error, Full) else None
        return Refusal(_STATUS[fault_of(error)], said, retry_s)
    return Refusal(of_error(error).status, said)
