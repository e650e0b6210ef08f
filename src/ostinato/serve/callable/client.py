"""A front end's way to a callable in its own process; it survives that process's death.

Requests that were sent to a process that died are sent again to the next one: answering twice does
no harm, since nothing of an answer is passed on before it is whole. Those that ran when it died are
suspects, and run alone from then on, after all others. One that a process dies with then is
refused: it is what kills them.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

import msgspec

from ostinato.errors import OstinatoError
from ostinato.serve.callable import messages
from ostinato.serve.callable.arrays import Arrays, rows_of
from ostinato.serve.callable.faults import (
    Failure,
    absent,
    closing,
    fatal,
    given_up,
    never_ready,
    queue_full,
    too_late,
    too_many_rows,
    unlucky,
)
from ostinato.serve.callable.service import Description, Numbers, hanging

_READ_BYTES = 1 << 20
_RETRY_S = 0.02
_MOST_STRIKES = 2
_MOST_SENDINGS = 8
"""Of one that no process was seen to die with: the word that it ran may have been lost."""
_BEAT_S = 0.5
_RESTART_S = 5.0
"""About as long as a process takes to be there again."""


@dataclass(slots=True)
class _Open:
    message: messages.Infer | messages.Count | messages.Drain
    answer: asyncio.Future[Any]
    sendings: int = 0
    runs: bool = False
    strikes: int = 0


class CallableClient:
    """A `CallableService` over a Unix socket. `start` it, then `close` it.

    Args:
        path: Where the process listens, and the one that takes its place will.

    Attributes:
        greetings: How many processes have been ready so far.
    """

    def __init__(self, path: str) -> None:
        self.greetings = 0
        self._path = path
        self._keys = count()
        self._open: dict[int, _Open] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._description: Description | None = None
        self._known = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._beat: asyncio.Task[None] | None = None
        self._stuck_s = 0.0
        self._heard_at = monotonic()
        self._why_broken = ""
        self._cause: Failure | None = None
        self._is_draining = False

    @property
    def description(self) -> Description:
        """The model's metadata.

        Raises:
            ResourceError: OST6056, the process has not introduced itself yet.
        """
        if self._description is None:
            raise given_up(self._why_broken) if self._why_broken else absent()
        return self._description

    @property
    def is_ready(self) -> bool:
        """Whether a process is there, warm, and takes requests."""
        return self._writer is not None and not self._is_draining

    @property
    def is_broken(self) -> bool:
        """Whether no process will come any more."""
        return bool(self._why_broken)

    def trouble(self, progress_s: float) -> str | None:
        """Return why no work is done; see `CallableService`."""
        if self._why_broken:
            return f"the process of the model {self._why_broken}"
        if self._writer is None:
            return None  # another one is being started, which readiness says
        mute_s = self.mute_s
        if mute_s > progress_s + _BEAT_S:
            return f"the process of the model has not been heard of for {mute_s:.0f} s"
        return hanging(self._stuck_s, progress_s)

    @property
    def mute_s(self) -> float:
        """How long the process has said nothing and kept others waiting; 0: it keeps nobody.

        Not even how it stands, which it tells whatever its model does: something there holds
        Python's lock, or the process is stopped. Others are those of `Batcher.stuck_s`: a lone
        request that runs harms nobody. One that has not begun does not run: it is kept itself.
        """
        waiting = [one for one in self._open.values() if isinstance(one.message, messages.Infer)]
        if self._writer is None or (len(waiting) == 1 and waiting[0].runs):
            return 0.0
        return monotonic() - self._heard_at

    def start(self) -> None:
        """Begin to connect, and to connect again; `wait_ready` waits for the first time."""
        if self._task is None:
            self._task = asyncio.create_task(self._stay_connected(), name="callable client")
            self._beat = asyncio.create_task(self._listen_to_heart(), name="callable heartbeat")

    async def wait_ready(self) -> None:
        """Wait until the model is warm.

        Raises:
            OstinatoError: It never will be: what its process failed with (OST6052, OST6055 or what
                the factory raised of ours), or OST6056 where that left no word.
        """
        self.start()
        await self._known.wait()
        if self._why_broken:
            raise self._cause.error() if self._cause else never_ready(self._why_broken)

    async def infer(
        self, inputs: Arrays, *, priority: int = 0, timeout_s: float | None = None
    ) -> Arrays:
        """Answer one request; see `CallableService`. A caller who is cancelled gives it up."""
        described = self.description
        rows = rows_of(inputs, described.inputs)  # refused here, it costs the model nothing
        if rows > described.max_batch:
            raise too_many_rows(rows, described.max_batch)
        if self._is_draining:
            raise closing()
        if self._writer is None and self._waiting >= described.max_waiting:
            raise queue_full(self._waiting, _RESTART_S)  # nobody there to say so
        key = next(self._keys)
        message = messages.Infer(key, dict(inputs), priority, timeout_s)
        try:
            # Held here too: a process that hangs, or is being started again, keeps no deadline.
            async with asyncio.timeout(timeout_s):
                found: Arrays = await self._ask(message)
        except TimeoutError:
            raise too_late(timeout_s or 0.0) from None
        return found

    async def numbers(self) -> Numbers:
        """Return what the process has done since it began."""
        found: Numbers = await self._ask(messages.Count(next(self._keys)))
        return found

    async def drain(self, bound_s: float) -> bool:
        """Take no more; say whether all that was there was answered within `bound_s`."""
        self._is_draining = True
        if self._writer is None:
            return not self._open
        found: bool = await self._ask(messages.Drain(next(self._keys), bound_s))
        return found

    async def close(self) -> None:
        """End now; whoever waits is told."""
        self._is_draining = True
        for task in (self._beat, self._task):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._fail_all(closing())

    def break_off(self, why: str, cause: Failure | None = None) -> None:
        """Say that no process will come any more; whoever waits is told.

        Args:
            cause: What it failed with, which is for who serves it and not for clients.
        """
        self._why_broken, self._cause = why, cause
        self._known.set()
        self._fail_all(given_up(why))

    @property
    def _waiting(self) -> int:
        """Requests alone: what else is asked, such as how the process stands, takes no place."""
        return sum(isinstance(one.message, messages.Infer) for one in self._open.values())

    async def _ask(self, message: messages.Infer | messages.Count | messages.Drain) -> Any:
        if self._why_broken:
            raise given_up(self._why_broken)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[message.key] = asked = _Open(message, answer)
        try:
            self._send(asked)
            return await answer
        finally:
            del self._open[message.key]
            if answer.cancelled() and self._writer is not None:
                self._writer.write(messages.frame([messages.Cancel(message.key)]))

    def _send(self, asked: _Open) -> None:
        if self._writer is not None:  # else it is sent when a process is there
            asked.sendings += 1
            message = asked.message
            if asked.strikes and isinstance(message, messages.Infer):
                message = msgspec.structs.replace(message, alone=True)
            self._writer.write(messages.frame([message]))

    async def _listen_to_heart(self) -> None:
        while not self._why_broken:
            if self._writer is None:
                self._heard_at = monotonic()
            else:
                with contextlib.suppress(OstinatoError):  # it is gone: the next one is asked
                    self._stuck_s = (await self.numbers()).stuck_s
            await asyncio.sleep(_BEAT_S)

    async def _stay_connected(self) -> None:
        while not self._why_broken:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                await self._listen(reader, writer)
            except (OSError, ValueError, msgspec.MsgspecError):
                pass  # it is gone, or speaks another language
            finally:
                self._writer = None
                writer.close()
            self._blame()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = messages.to_front()
        while data := await reader.read(_READ_BYTES):
            self._heard_at = monotonic()
            for frame in frames.feed(data):
                for message in frame:
                    self._take(message, writer)

    def _take(self, message: messages.ToFront, writer: asyncio.StreamWriter) -> None:
        match message:
            case messages.Hello(description):
                self._description = description
                self._writer = writer
                self.greetings += 1
                self._known.set()
                for asked in sorted(self._open.values(), key=lambda one: one.strikes):
                    self._send(asked)
            case messages.Began(keys):
                for key in keys:
                    if key in self._open:  # else it was given up meanwhile
                        self._open[key].runs = True
            case messages.Done(key, value) | messages.Counted(key, value):
                self._settle(key, value)
            case messages.Drained(key, is_empty):
                self._settle(key, is_empty)
            case messages.Failed(key, failure):
                self._settle(key, failure.error())

    def _settle(self, key: int, value: object) -> None:
        asked = self._open.get(key)
        if asked is None or asked.answer.done():
            return
        if isinstance(value, OstinatoError):
            asked.answer.set_exception(value)
        else:
            asked.answer.set_result(value)

    def _blame(self) -> None:
        """After a death: who ran is a suspect, and a suspect, which ran alone, is guilty."""
        for asked in self._open.values():
            asked.strikes += asked.runs
            asked.runs = False
            if asked.answer.done():
                continue
            if asked.strikes >= _MOST_STRIKES:
                asked.answer.set_exception(fatal())
            elif asked.sendings >= _MOST_SENDINGS:
                asked.answer.set_exception(unlucky(asked.sendings))

    def _fail_all(self, error: OstinatoError) -> None:
        for asked in self._open.values():
            if not asked.answer.done():
                asked.answer.set_exception(error)
