"""A link over a Unix socket, which outlives the engine at its other end.

When the engine's process dies, whoever had received nothing yet waits for the next one and is asked
for again, once; whoever had is told. The supervisor starts the engine anew; here it is only waited
for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ostinato.serve.link import OpenLink, Refused, gone
from ostinato.serve.wire import Hello, Problem, Reader, ToEngine, ToFront, frame

if TYPE_CHECKING:
    from ostinato.llm.tokenizer import Tokenizer
    from ostinato.serve.answers import Answers

_log = logging.getLogger(__name__)
_RETRY_S = 0.05
_READ_AGAIN_S = 1.0


class _Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self, link: SocketLink) -> None:
        self._link = link
        self._reader = Reader(ToFront)
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Told here, for the engine's first words may come before whoever connects goes on.
        self._link.speak_through(cast("asyncio.WriteTransport", transport))

    def data_received(self, data: bytes) -> None:
        for messages in self._reader.feed(data):
            self._link.take(messages)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class SocketLink(OpenLink):
    """To the engine that listens at `path`.

    Args:
        path: Its socket.
        restart_s: How long requests wait for an engine that has gone.
        load_tokenizer: Reads the tokenizer of a folder.
    """

    def __init__(
        self,
        path: Path,
        *,
        restart_s: float,
        load_tokenizer: Callable[[str], Awaitable[Tokenizer | None]],
        served_name: str | None = None,
    ) -> None:
        super().__init__(served_name)
        self._path = path
        self._restart_s = restart_s
        self._load_tokenizer = load_tokenizer
        self._transport: asyncio.WriteTransport | None = None
        self._is_up = False
        self._waiting: list[Answers] = []
        self._retry_s = _READ_AGAIN_S
        self._reading: asyncio.Task[None] | None = None
        self._task = self._loop.create_task(self._keep())

    @property
    def is_up(self) -> bool:
        """Whether the engine is there and has introduced itself."""
        return self._is_up

    def close(self) -> None:
        """End it; whoever waits is told."""
        self._task.cancel()
        if self._reading is not None:
            self._reading.cancel()
        super().close()
        if self._transport is not None:
            self._transport.close()

    async def _keep(self) -> None:
        """Connect, again and again."""
        while True:
            wire = await self._connect()
            await wire.lost
            self._lose()

    async def _connect(self) -> _Wire:
        while True:
            try:
                _, wire = await self._loop.create_unix_connection(
                    lambda: _Wire(self), str(self._path)
                )
            except OSError:  # it is not there yet
                await asyncio.sleep(_RETRY_S)
                continue
            return wire

    def speak_through(self, transport: asyncio.WriteTransport) -> None:
        """Take a connection that has just been made."""
        self._transport = transport

    def _greet(self, hello: Hello) -> None:
        if self._tokenizer is None and hello.folder is not None:
            # Held, for a task that nobody holds may be collected.
            self._reading = self._loop.create_task(self._read_tokenizer(hello, hello.folder))
        else:
            self._ready(hello)

    async def _read_tokenizer(self, hello: Hello, folder: str) -> None:
        try:
            self._tokenizer = await self._load_tokenizer(folder)
        except Exception:  # noqa: BLE001 - else this front end would never be ready
            _log.exception("the tokenizer cannot be read, and will be tried again")
            await asyncio.sleep(self._retry_s)
            if self._transport is not None:
                self._transport.close()  # it is greeted anew when it is there again
            return
        self._ready(hello)

    def _ready(self, hello: Hello) -> None:
        was_up = self._is_up
        self._is_up = self._transport is not None
        super()._greet(hello)
        if was_up or self._transport is None:
            return
        again, self._waiting = self._waiting, []
        for answers in again:
            if not answers.is_over:
                self._send([answers.message()])
        if again:
            _log.warning("the engine is back: %d requests were sent to it again", len(again))

    def _lose(self) -> None:
        """The engine has gone: sort who can be asked for again from who cannot."""
        if not self._is_up:  # a dying one still took the connection, and never said a word
            self._transport = None
            return
        self._is_up, self._transport, self._pulse = False, None, None
        problem = gone("the engine's process ended")
        for told in self._asked.values():
            if not told.done():
                told.set_exception(Refused(problem))
        for answers in list(self._open.values()):
            if answers.has_come or answers.was_resent:
                answers.end(problem)
            else:
                answers.was_resent = True
                self._waiting.append(answers)
        _log.error("the engine's process ended: %d requests wait for it", len(self._waiting))
        self._loop.call_later(self._restart_s, self._give_up, list(self._waiting))

    def _give_up(self, waiting: list[Answers]) -> None:
        for answers in waiting:
            if answers in self._waiting:
                self._waiting.remove(answers)
                answers.end(gone(f"the engine did not come back within {self._restart_s:g} s"))

    def _send(self, messages: Sequence[ToEngine]) -> None:
        if self._transport is not None and self._is_up:
            self._transport.write(frame(messages))

    def _check_up(self) -> None:
        if not self._is_up:
            raise Refused(
                Problem(
                    "OST6021",
                    "the engine is being started and takes no requests yet",
                    "send the request again in a few seconds",
                    "down",
                    retry_s=5.0,
                )
            )
