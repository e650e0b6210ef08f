"""What stands before every route: ids, keys, limits, the stop. Pure ASGI, one layer.

Starlette's own base class for middleware hides a client's going away from what stands behind it, so
these are plain ASGI applications.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from ostinato.errors import OstinatoError
from ostinato.serve.drain import closed
from ostinato.serve.open_inference.refusals import body_of
from ostinato.serve.openai.about import param_of
from ostinato.serve.openai.errors import HttpProblem, of_error, of_problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ostinato.serve.services import Services

_log = logging.getLogger("ostinato.serve.access")
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_OPEN = frozenset(
    {"/livez", "/readyz", "/healthz", "/v2/health/live", "/v2/health/ready", "/metrics"}
    | {"/ui/numbers"}
)
"""Answered at any time, and to anybody: who asks is a machine that looks after this one."""
_PATIENCE_S = 3.0
_DISCARD_S = 1.0
_SHOWN = 120
_PAGE = "/ui"
"""The page is no secret; what it shows is asked for with a key."""


class Gate:
    """Every request comes through here."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app, self._services = app, services
        settings = services.settings
        self._api_keys = [key.encode() for key in settings.api_keys]
        self._admin_keys = [key.encode() for key in settings.admin_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = _Passage(scope, send)
        try:
            await self._let_through(scope, receive, passage)
        except asyncio.CancelledError:
            if "ostinato.gone" not in scope:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()  # it was the client who went away
        except ClientDisconnect:
            pass  # in the middle of its body: nobody is there to be answered
        except Exception as error:  # noqa: BLE001 - a client is always answered
            await self._answer(error, scope, receive, passage)
        finally:
            passage.log()

    async def _let_through(self, scope: Scope, receive: Receive, passage: _Passage) -> None:
        path: str = scope["path"]
        if path in _OPEN:
            await self._app(scope, receive, passage.send)
            return
        headers = dict(scope["headers"])
        self._check_key(path, headers)
        drain = self._services.drain
        if drain.is_draining:
            self._services.metrics.shed("draining")
            refusal = of_problem(closed())
            refusal.closes = True  # so that the client connects to another server
            raise refusal
        try:
            body = _Body(receive, self._services, headers)
        except HttpProblem:
            await _discard(receive, headers, 2 * self._services.settings.max_body_bytes)
            raise
        drain.enter()
        try:
            if self._services.link is not None:
                # The other front ends may have heard of the engine a moment before this one.
                await self._services.link.wait_first(_PATIENCE_S)
            await self._app(scope, body.receive, passage.send)
        finally:
            drain.leave()

    def _check_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        given = headers.get(b"authorization", b"")
        given = given[7:].strip() if given[:7].lower() == b"bearer " else b""
        if path.startswith("/admin/"):
            if not self._admin_keys:
                raise HttpProblem(403, "this server was started without a key for /admin/*")
            if not _is_one_of(given, self._admin_keys):
                raise HttpProblem(401, "/admin/* needs its own key as a bearer token")
            return
        if not self._api_keys or path == _PAGE or path.startswith(_PAGE + "/"):
            return
        if not _is_one_of(given, self._api_keys):
            raise HttpProblem(401, "an API key is needed as a bearer token", code="invalid_api_key")

    async def _answer(
        self, error: Exception, scope: Scope, receive: Receive, passage: _Passage
    ) -> None:
        problem = as_problem(error, scope["path"])
        if problem.param is None:
            names = scope.get("ostinato.names", {})
            problem.param = param_of(problem, names)
        if problem.status == 500:
            _log.exception("a request failed", extra={"request_id": scope["ostinato.id"]})
        if passage.has_begun:
            passage.is_broken = True
            raise error  # the head has gone: all that is left is to end the connection
        response = problem.response(body_of(problem, scope["path"]))
        await response(scope, receive, passage.send)


def as_problem(error: Exception, path: str = "") -> HttpProblem:
    """Return the answer to a request for `path` that ended in `error`."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, OstinatoError):
        return of_error(error)
    if isinstance(error, HTTPException):
        return _of_routing(error, path)
    return HttpProblem(
        500, "the server failed at this request; its log has the request's id", code="OST6025"
    )


def _of_routing(error: HTTPException, path: str) -> HttpProblem:
    shown = path if len(path) <= _SHOWN else path[:_SHOWN] + "..."
    if error.status_code == 405:
        methods = (error.headers or {}).get("Allow", "another method")
        problem = HttpProblem(405, f"{shown} is not asked like that; use {methods}")
        problem.methods = methods
        return problem
    if error.status_code == 404:
        return HttpProblem(404, f"there is nothing at {shown}; /openapi.json lists what there is")
    return HttpProblem(error.status_code, "the request was not understood; see /openapi.json")


def _is_one_of(given: bytes, keys: list[bytes]) -> bool:
    """Whether a key is one of ours; takes as long whether or not, and whichever it is."""
    found = False
    for key in keys:
        found |= hmac.compare_digest(given, key)
    return found


class _Passage:
    """One request on its way back: names it, and remembers what it was answered."""

    def __init__(self, scope: Scope, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        self._id = given if _ID.fullmatch(given) else uuid4().hex.encode()
        self._scope, self._send = scope, send
        self._began = monotonic()
        self._status = 0
        self.is_broken = False
        scope["ostinato.id"] = self._id.decode()

    @property
    def has_begun(self) -> bool:
        """Whether an answer is on its way."""
        return self._status != 0

    async def send(self, message: Message) -> None:
        """Send on, with the request's id."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self._id)]
        await self._send(message)

    def log(self) -> None:
        """Log what came of it; nothing of what it said."""
        if self._scope["path"] in _OPEN or not _log.isEnabledFor(logging.INFO):
            return
        said: dict[str, Any] = {
            "request_id": self._scope["ostinato.id"],
            "method": self._scope["method"],
            "path": _known_path(self._scope),
            "status": self._status or 499,
            "ms": round((monotonic() - self._began) * 1e3, 1),
        }
        _log.info("request", extra=said)


def _known_path(scope: Scope) -> str:
    """Return the path of a route; one that nobody answers may be anything, and stays out.

    A request that is refused here has not been routed yet.
    """
    is_known = scope.get("endpoint") is not None or any(
        route.matches(scope)[0] is not Match.NONE for route in scope["app"].routes
    )
    return str(scope["path"]) if is_known else "unknown"


async def _discard(receive: Receive, headers: dict[bytes, bytes], most: int) -> None:
    """Read past a body of at most `most` bytes, for a short while.

    A client that sends its whole body before it reads would see a closed connection, not why.
    """
    # One that expects a word before it sends has not begun.
    if b"expect" in headers or int(headers[b"content-length"][:20]) > most:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while (await receive()).get("more_body", False):
                pass


class _Body:
    """The body of one request, within its size and time."""

    def __init__(self, receive: Receive, services: Services, headers: dict[bytes, bytes]) -> None:
        self._receive = receive
        self._left = services.settings.max_body_bytes
        self._until: float | None = None
        self._seconds = services.settings.body_s
        self._is_whole = False
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._left:
            raise self._too_large()

    async def receive(self) -> Message:
        """Receive on."""
        if self._is_whole:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        self._until = self._until or now + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise HttpProblem(
                408, f"the body did not arrive within {self._seconds:g} s", closes=True
            ) from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise self._too_large()
            self._is_whole = not message.get("more_body", False)
        return message

    def _too_large(self) -> HttpProblem:
        return HttpProblem(
            413, "the body is larger than this server takes", code="body_too_large", closes=True
        )
