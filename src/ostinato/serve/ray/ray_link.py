"""A front end's link to engines that are replicas of a Ray Serve deployment.

A replica that dies takes its requests with it. Whoever had received nothing yet is asked for again,
once, from another replica; whoever had is told. So no request that was let in is lost unsaid.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ostinato.serve import wire
from ostinato.serve.link import OpenLink, Refused, gone
from ostinato.serve.ray.door import (
    BackPressureError,
    DeploymentUnavailableError,
    RayActorError,
    RayTaskError,
)
from ostinato.serve.ray.placing import marks_of

if TYPE_CHECKING:
    from ostinato.llm.tokenizer import Tokenizer
    from ostinato.serve.answers import Answers

_log = logging.getLogger(__name__)
_decoder = msgspec.msgpack.Decoder(list[wire.ToFront])
_encode = msgspec.msgpack.Encoder().encode
_LOOK_EVERY_S = 0.5
_WAIT_S = 5.0

LoadTokenizer = Callable[[str], Coroutine[None, None, "Tokenizer | None"]]


class RayLink(OpenLink):
    """To the engines behind `engines`; made and used in one event loop."""

    def __init__(
        self,
        engines: Any,
        *,
        load_tokenizer: LoadTokenizer,
        served_name: str | None = None,
    ) -> None:
        super().__init__(served_name)
        self._engines = engines
        self._streams = engines.options(stream=True)
        self._load_tokenizer = load_tokenizer
        self._following: dict[int, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._is_up = asyncio.Event()
        self._run(self._look())

    async def wait_up(self) -> None:
        """Wait until an engine has introduced itself."""
        await self._is_up.wait()

    def close(self) -> None:
        """End it; whoever waits is told."""
        super().close()
        for task in [*self._following.values(), *self._background]:
            task.cancel()

    async def _look(self) -> None:
        """Ask some engine how it stands, again and again."""
        while True:
            try:
                async with asyncio.timeout(_WAIT_S):
                    described = await self._engines.describe.remote()
                await self._hear(_decoder.decode(described))
            except (TimeoutError, RayActorError, RayTaskError, DeploymentUnavailableError) as error:
                _log.warning("no engine says how it stands: %s", type(error).__name__)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _hear(self, described: list[Any]) -> None:
        hello = described[0]
        if self._tokenizer is None and hello.folder is not None:
            self._tokenizer = await self._load_tokenizer(hello.folder)
        self.take(described)
        self._is_up.set()

    def _send(self, messages: Sequence[wire.ToEngine]) -> None:
        for message in messages:
            if isinstance(message, wire.Cancel):
                for key in message.keys:
                    task = self._following.pop(key, None)
                    if task is not None and task is not asyncio.current_task():
                        task.cancel()
            elif isinstance(message, wire.Ask):
                self._run(self._answer(message))
            else:
                task = self._loop.create_task(self._follow(message))
                self._following[message.key] = task
                task.add_done_callback(partial(self._followed, message.key))

    def _followed(self, key: int, task: asyncio.Task[None]) -> None:
        self._following.pop(key, None)

    async def _answer(self, asked: wire.Ask) -> None:
        try:
            self.take(_decoder.decode(await self._engines.ask.remote(_encode(asked))))
        except (RayActorError, RayTaskError, DeploymentUnavailableError) as error:
            self.take([wire.Told(asked.key, problem=_problem(error))])

    async def _follow(self, message: wire.Generate) -> None:
        """Take one request's frames, from a second replica if the first dies before any came."""
        answers = self._open.get(message.key)
        if answers is None:
            return
        marks = marks_of(message.prompt_ids, message.salt)
        while True:
            try:
                await self._read(message, marks)
                if not answers.is_over:
                    answers.end(gone("the engine's replica ended without a word"))
                return
            except (RayActorError, DeploymentUnavailableError) as error:
                if not _may_ask_again(answers):
                    answers.end(gone(f"the engine's replica died ({type(error).__name__})"))
                    return
                answers.was_resent = True
                message = answers.message()
                _log.warning("a replica died: request %d goes to another one", message.key)
            except (BackPressureError, RayTaskError) as error:
                answers.end(_problem(error))
                return

    async def _read(self, message: wire.Generate, marks: list[bytes]) -> None:
        frames = self._streams.generate.remote(_encode(message), marks)
        try:
            async for frame in frames:
                self.take(_decoder.decode(frame))
        except asyncio.CancelledError:
            frames.cancel()  # its replica frees the row
            raise

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _check_up(self) -> None:
        if not self._is_up.is_set():
            problem = wire.Problem(
                "OST6021",
                "no engine is there yet",
                "send the request again in a few seconds",
                "down",
                retry_s=5.0,
            )
            raise Refused(problem)


def _may_ask_again(answers: Answers) -> bool:
    return not (answers.has_come or answers.was_resent or answers.is_over)


def _problem(error: Exception) -> wire.Problem:
    if isinstance(error, BackPressureError):
        return wire.Problem(
            "OST6064",
            "all engines are busy and as many requests wait as may",
            "send the request again later",
            "full",
            retry_s=error.retry_after_s or 1.0,
        )
    if isinstance(error, RayTaskError):
        said = str(error.cause)[:200]
        return wire.Problem(
            "OST6065",
            f"the engine's replica failed at this request: {said}",
            "look in the replica's log",
            "internal",
        )
    return gone(f"the engine's replica died ({type(error).__name__})")
