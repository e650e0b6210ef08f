"""What a connection may do: how long a head takes, how large it is, how long we are left unread.

uvicorn's own protocol waits for ever for a head and keeps whatever comes of it, and answers too
many connections with 503, which would take a server out of the pool for being busy. This one
refuses, in the same shape as everything else: 408, 429, 431, and 400 for what is no HTTP.
"""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ostinato.serve.open_inference.refusals import body_of
from ostinato.serve.openai.errors import HttpProblem

if TYPE_CHECKING:
    from ostinato.serve.settings import Settings


_MOST_MS = 2**31 - 1
_NO_HTTP = "what came is no request of HTTP/1.1; send one, or TLS to a port that speaks it"


class GuardedProtocol(HttpToolsProtocol):
    """One connection, within the limits of `settings`."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(**options)
        self._settings = settings
        self.access_log = False  # the gate logs, and knows what must not be
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._is_refused = False
        self._fed = 0  # bytes since the head began
        self._seen = 0  # bytes of names and values in it
        self.url = b""  # until a request begins

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is room for one more."""
        super().connection_made(transport)
        _prepare(transport, self._settings.unread_s)
        if len(self.connections) > self._settings.max_connections:
            problem = HttpProblem(429, "the server has as many connections as it takes")
            self._refuse(problem, retry=b"retry-after: 1\r\n")
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, as long as the head they belong to is within its bounds."""
        if self._is_refused:
            return
        self._fed += len(data)
        super().data_received(data)
        if not self._in_head or self._is_refused:
            return
        if self._fed > self._settings.max_header_bytes:
            self._refuse_head()
        elif self._timer is None:
            self._arm()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._seen = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        self._seen += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._seen += len(name) + len(value) + 4
        if self._seen <= self._settings.max_header_bytes:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        self._disarm()
        if self._seen > self._settings.max_header_bytes:
            self._refuse_head()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; what comes next begins another."""
        self._fed = 0
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        if not self._is_refused:
            self._refuse(HttpProblem(400, _NO_HTTP))

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self._settings.header_s, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        seconds = self._settings.header_s
        self._refuse(HttpProblem(408, f"the head of a request did not arrive in {seconds:g} s"))

    def _refuse_head(self) -> None:
        most = self._settings.max_header_bytes
        self._refuse(HttpProblem(431, f"the head of a request is larger than {most} bytes"))

    @property
    def _path(self) -> str:
        """The path as far as it is known; before that, one that every client of this service asks.

        Who serves a callable has clients of the Open Inference Protocol alone.
        """
        begun = self.url.partition(b"?")[0]
        otherwise = "/" if self._settings.callable is None else "/v2"
        return begun.decode("latin-1") or otherwise

    def _refuse(self, problem: HttpProblem, retry: bytes = b"") -> None:
        self._is_refused = True
        self._disarm()
        if self.transport.is_closing():
            return
        body = body_of(problem, self._path)
        status = HTTPStatus(problem.status)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
        )
        self.transport.write(head.encode() + retry + b"\r\n" + body)
        self.transport.close()


def _prepare(transport: asyncio.Transport, unread_s: float) -> None:
    """Let a small frame go at once, and a connection end whose other end takes nothing.

    By itself a frame would wait for the one before it to be acknowledged, 40 ms: asyncio sees to
    that only for sockets that were made with their protocol's number. And what a client never reads
    would be kept for as long as its machine is there. The system counts the time, for it alone
    knows that nothing was taken; one that cannot (macOS) holds such a connection.
    """
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        unread_ms = min(max(1, round(unread_s * 1000)), _MOST_MS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)


def guarded(settings: Settings) -> type[asyncio.Protocol]:
    """Return the protocol as uvicorn takes it: a class."""

    class Guarded(GuardedProtocol):
        def __init__(self, **options: Any) -> None:
            super().__init__(settings, **options)

    return Guarded
