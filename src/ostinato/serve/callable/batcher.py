"""The queue of one model: requests come on the event loop, batches run on the model's own thread.

What to run next is `batching.plan`'s to say. The loop never waits for the model: it hands a batch
to the thread and goes on taking requests, which gather meanwhile for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from time import monotonic
from typing import Generic, TypeVar

from ostinato.errors import OstinatoError
from ostinato.serve.callable.batching import Limits, Waiting, plan
from ostinato.serve.callable.faults import closing, queue_full, too_late, too_many_rows

Q = TypeVar("Q")
A = TypeVar("A")

Run = Callable[[Sequence[Q]], Sequence[A | OstinatoError]]
Begun = Callable[[list[int]], None]
"""Hears the keys of its requests that a run begins with, before it begins."""


@dataclass(slots=True)
class Counts:
    """What happened so far, and what is going on.

    Attributes:
        rows: Of all batches, padding not counted.
        running: Requests in the batch that runs now.
        running_since_s: When that batch began, on the batcher's clock; None while none runs.
    """

    waiting: int = 0
    running: int = 0
    batches: int = 0
    rows: int = 0
    answered: int = 0
    failed: int = 0
    late: int = 0
    refused: int = 0
    running_since_s: float | None = None


@dataclass(slots=True)
class _Asked(Generic[Q, A]):
    what: Q
    place: Waiting
    timeout_s: float
    answer: asyncio.Future[A] = field(repr=False)
    key: int = 0
    begun: Begun | None = None


class Batcher(Generic[Q, A]):
    """Batches requests for `run`, which is called on one thread, one batch at a time.

    Args:
        run: Gets the requests of one batch and returns one answer or error for each; it may not
            raise. If it does, every request of the batch fails with what it raised.
    """

    def __init__(
        self, run: Run[Q, A], limits: Limits, clock: Callable[[], float] = monotonic
    ) -> None:
        self.limits = limits
        self.counts = Counts()
        self._run = run
        self._clock = clock
        self._queue: dict[int, _Asked[Q, A]] = {}
        self._running: list[_Asked[Q, A]] = []
        self._tickets = count()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closing = False
        self._run_s = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ostinato-callable")
        self._task: asyncio.Task[None] | None = None

    async def infer(
        self,
        what: Q,
        *,
        kind: Hashable,
        rows: int,
        priority: int = 0,
        timeout_s: float | None = None,
        alone: bool = False,
        key: int = 0,
        begun: Begun | None = None,
    ) -> A:
        """Return the answer to one request; a caller that is cancelled leaves the queue.

        Args:
            alone: It shares its run with no other.
            key: What `begun` is told.

        Raises:
            UsageError: OST6057, more rows than a batch holds.
            ResourceError: OST6053, the queue is full; OST6054, the deadline passed; OST6058, it is
                being closed; and what the model's run made of this request.
        """
        if rows > self.limits.max_batch:
            raise too_many_rows(rows, self.limits.max_batch)
        if self._is_closing:
            raise closing()
        if len(self._queue) >= self.limits.max_waiting:
            self.counts.refused += 1
            raise queue_full(len(self._queue), self._retry_s())
        now = self._clock()
        deadline = None if timeout_s is None else now + timeout_s
        ticket = next(self._tickets)
        kind = (kind, ticket) if alone else kind
        place = Waiting(ticket, kind, rows, now, priority, deadline)
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue[place.ticket] = _Asked(what, place, timeout_s or 0.0, answer, key, begun)
        self._tell()
        try:
            return await answer
        finally:
            self._queue.pop(place.ticket, None)
            self.counts.waiting = len(self._queue)

    @property
    def running_s(self) -> float:
        """How long the batch that runs now has been running; 0 while none does."""
        since = self.counts.running_since_s
        return 0.0 if since is None else self._clock() - since

    @property
    def stuck_s(self) -> float:
        """How long the batch that runs now has kept others from their answers; 0: it keeps nobody.

        Others are those that share the run, those behind it, and all that come once the one request
        in it has been given up. A lone one that is waited for harms nobody.
        """
        is_given_up = all(asked.answer.done() for asked in self._running)
        keeps_others = self._queue or len(self._running) > 1 or is_given_up
        return self.running_s if keeps_others else 0.0

    @property
    def busy_s(self) -> float:
        """How long batches have run, all together."""
        return self._run_s + self.running_s

    def _retry_s(self) -> float:
        """Return when what waits now will have run, as fast as rows ran until now."""
        if not self.counts.rows:
            return 1.0
        waiting = sum(asked.place.rows for asked in self._queue.values())
        return waiting * self._run_s / self.counts.rows

    def _tell(self) -> None:
        self.counts.waiting = len(self._queue)
        self._idle.clear()
        self._news.set()
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="batching")

    async def drain(self, bound_s: float) -> bool:
        """Take no more, wait for what is there; say whether all was answered within `bound_s`.

        No batch waits for company any more: none will come.
        """
        self._is_closing = True
        self._news.set()
        try:
            async with asyncio.timeout(bound_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End now: what waits is refused; a batch that runs is waited for."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for asked in list(self._queue.values()):
            _fail(asked, closing())
        await asyncio.to_thread(self._thread.shutdown)

    async def _work(self) -> None:
        while True:
            self._news.clear()
            now = self._clock()
            limits = replace(self.limits, max_delay_s=0.0) if self._is_closing else self.limits
            decided = plan((asked.place for asked in self._queue.values()), limits, now)
            for ticket in decided.late:
                self.counts.late += 1
                asked = self._queue.pop(ticket)
                _fail(asked, too_late(asked.timeout_s))
            if decided.run:
                await self._run_batch([self._queue.pop(ticket) for ticket in decided.run])
                continue
            if not self._queue:
                self._idle.set()
            await self._wait(None if decided.wake_s is None else decided.wake_s - now)

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _run_batch(self, batch: list[_Asked[Q, A]]) -> None:
        self.counts.waiting = len(self._queue)
        self.counts.running = len(batch)
        self._running = batch
        _tell_begun(batch)
        self.counts.running_since_s = self._clock()
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(
                self._thread, self._run, [asked.what for asked in batch]
            )
        except BaseException as error:
            for asked in batch:
                _fail(asked, error if isinstance(error, Exception) else closing())
            if not isinstance(error, Exception):
                raise
            answers = ()
        finally:
            self.counts.running = 0
            self._running = []
            self._run_s += self.running_s
            self.counts.running_since_s = None
        self.counts.batches += 1
        self.counts.rows += sum(asked.place.rows for asked in batch)
        for asked, answer in zip(batch, answers, strict=False):
            if isinstance(answer, OstinatoError):
                self.counts.failed += 1
                _fail(asked, answer)
            else:
                self.counts.answered += 1
                if not asked.answer.done():
                    asked.answer.set_result(answer)


def _tell_begun(batch: Sequence[_Asked[Q, A]]) -> None:
    told: dict[Begun, list[int]] = {}
    for asked in batch:
        if asked.begun is not None:
            told.setdefault(asked.begun, []).append(asked.key)
    for begun, keys in told.items():
        begun(keys)


def _fail(asked: _Asked[Q, A], error: Exception) -> None:
    if not asked.answer.done():
        asked.answer.set_exception(error)
