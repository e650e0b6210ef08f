"""A link to an engine in the same process, for tests and for whoever brings an engine of their own.

It speaks the same messages as `socket_link`, so nothing that uses a link can tell the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ostinato.serve.desk import Living, News, block_of
from ostinato.serve.link import OpenLink, Refused
from ostinato.serve.wire import Ask, Cancel, Problem, ToEngine

if TYPE_CHECKING:
    from ostinato.serve.desk import Desk

_PULSE_S = 0.1


class LocalLink(OpenLink):
    """To the engine of `desk`."""

    name = "local"

    def __init__(self, desk: Desk, served_name: str | None = None) -> None:
        super().__init__(served_name)
        self.living: dict[int, Living] = {}
        self._is_called = False
        self._desk = desk
        self._news: SimpleQueue[News] = SimpleQueue()
        self._tokenizer = desk.engine.tokenizer
        self._is_closed = False
        self._background: set[asyncio.Task[None]] = set()
        desk.versions.changed = self._greet_again
        self.take([desk.hello(), desk.pulse()])
        self._run(self._beat())

    def _greet_again(self) -> None:
        self._loop.call_soon_threadsafe(self.take, [self._desk.hello()])

    def put(self, news: News) -> None:
        """Take news, in the engine's thread."""
        self._news.put(news)
        if self._is_called:
            return
        self._is_called = True
        try:
            self._loop.call_soon_threadsafe(self._read)
        except RuntimeError:  # the loop is closed: nobody reads any more
            return

    def _read(self) -> None:
        self._is_called = False  # first: what is put from now on calls again
        blocks = []
        while not self._news.empty():
            blocks.append(block_of(*self._news.get()))
        self.take(blocks)

    def close(self) -> None:
        """End it; whoever waits is told."""
        super().close()
        self._is_closed = True
        for task in self._background:
            task.cancel()
        self._desk.leave(self)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_PULSE_S)
            self.take([self._desk.pulse()])

    async def _answer(self, asked: Ask) -> None:
        self.take([await asyncio.to_thread(self._desk.answer, asked)])

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _send(self, messages: Sequence[ToEngine]) -> None:
        for message in messages:
            if isinstance(message, Cancel):
                self._desk.cancel(message.keys, self)
            elif isinstance(message, Ask):
                self._run(self._answer(message))
            else:
                self.take([self._desk.submit(message, self)])

    def _check_up(self) -> None:
        if self._is_closed:
            raise Refused(Problem("OST6021", "the engine is not there", "try again later", "down"))
