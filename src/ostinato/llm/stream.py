"""An answer as it comes, read from any thread or event loop.

The engine's loop puts tokens down and goes on; it never waits for a reader. Who reads takes what
has come since, so a slow reader gets fewer and larger pieces, and what waits for it is bounded by
the answer's own length. Tokens become text in the reader's thread, not in the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakSet

from ostinato.errors import UsageError
from ostinato.llm.answers import Choice, Delta, Metrics, Output
from ostinato.llm.request import FinishReason
from ostinato.llm.values import read_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostinato.llm.reply import Event
    from ostinato.llm.resident_launch import TokenLogprobs
    from ostinato.llm.text import AnswerText


class Stream:
    """The `n` answers to one request.

    Iterate over it, with `async for` or `for`, to get each `Delta` once; or call `result`, which
    gives the whole answers however much was read before. Of two readers each gets what the other
    has not, and both see the end. A reader that has seen the end and begins again is refused
    (UsageError, OST5048), for it would find nothing.

    A stream that is dropped does not end its request, which runs to its end as others do: call
    `cancel` when nobody wants the answer any more.
    """

    def __init__(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        channels: Sequence[Channel],
        cancel: Callable[[], None],
    ) -> None:
        self.request_id = request_id
        self.prompt_ids = tuple(prompt_ids)
        self._channels = tuple(channels)
        self._cancel = cancel
        self._ready: deque[Delta] = deque()
        self._changed = threading.Condition()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._through: WeakSet[object] = WeakSet()  # the readers that have seen the end
        for channel in self._channels:
            channel.on_news = self._wake

    def cancel(self) -> None:
        """End the request wherever it is; what has come stays readable. Never waits."""
        self._cancel()

    @property
    def is_finished(self) -> bool:
        """Whether nothing more comes; there may be deltas left to read."""
        return all(channel.is_finished for channel in self._channels)

    @property
    def new_tokens(self) -> int:
        """How many tokens have come so far, of all answers, whether read or not."""
        return sum(channel.new_tokens for channel in self._channels)

    def result(self, timeout: float | None = None) -> Output:
        """Wait until all answers are whole, and return them.

        Args:
            timeout: In seconds; None waits as long as it takes.

        Raises:
            TimeoutError: They are not whole yet; the request goes on.
        """
        timeout = read_timeout("timeout", timeout)
        with self._changed:
            if not self._changed.wait_for(lambda: self.is_finished, timeout):
                raise TimeoutError(f"request {self.request_id} is not finished after {timeout} s")
        return self._output()

    async def wait(self) -> Output:
        """Wait, in an event loop, until all answers are whole, and return them."""
        while not self.is_finished:
            await self._wait_for_news(lambda: self.is_finished)
        return self._output()

    def __iter__(self) -> Iterator[Delta]:
        self._require_unread()
        return self._deltas()

    def _deltas(self) -> Iterator[Delta]:
        while (delta := self._next_delta()) is not None or not self._is_read():
            if delta is not None:
                yield delta
                continue
            with self._changed:
                self._changed.wait_for(self._may_go_on)
        self._through.add(_reader())

    def __aiter__(self) -> AsyncIterator[Delta]:
        self._require_unread()
        return self

    def _require_unread(self) -> None:
        if _reader() in self._through:
            raise UsageError(
                f"the stream of {self.request_id} has been read to its end, and gives each piece "
                "once",
                code="OST5048",
                remedy="call result(), which gives the whole answers however often, or keep the "
                "pieces as they come",
            )

    async def __anext__(self) -> Delta:
        while (delta := self._next_delta()) is None:
            if self._is_read():
                self._through.add(_reader())
                raise StopAsyncIteration
            await self._wait_for_news(self._may_go_on)
        return delta

    def _next_delta(self) -> Delta | None:
        for channel in self._channels:
            delta = channel.take()
            if delta is not None:
                if self._is_read():
                    self._wake()  # another reader, for whom nothing more comes
                return delta
        return None

    def _is_read(self) -> bool:
        return all(channel.is_read for channel in self._channels)

    def _may_go_on(self) -> bool:
        return any(channel.has_news for channel in self._channels) or self._is_read()

    def _output(self) -> Output:
        choices = tuple(channel.choice() for channel in self._channels)
        return Output(self.request_id, self.prompt_ids, choices)

    async def _wait_for_news(self, is_there: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        with self._changed:
            if is_there():
                return
            self._waiters.append((loop, waiter))
        await waiter

    def _wake(self) -> None:
        """Tell whoever waits; in any thread."""
        with self._changed:
            self._changed.notify_all()
            waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            try:
                loop.call_soon_threadsafe(_set, waiter)
            except RuntimeError:  # that event loop is closed: nobody waits in it any more
                continue


class Channel:
    """One answer: the loop puts events in, one reader takes deltas out.

    Args:
        index: Which of the `n` answers.
        text: Makes the text; None where there is no tokenizer.
    """

    def __init__(self, index: int, text: AnswerText | None) -> None:
        self._index, self._text = index, text
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # a reader and `choice` must not cut one text in two
        self._events: list[Event] = []
        self._last: Event | None = None
        self._said: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] | None = None
        self._end: Delta | None = None
        self._unread: list[Delta] = []
        self.on_news: Callable[[], None] | None = None

    def put(self, event: Event) -> None:
        """Take an event; in the loop's thread. Never waits for a reader."""
        with self._lock:
            self._events.append(event)
            if event.finish is not None:
                self._last = event
        if self.on_news is not None:
            self.on_news()

    @property
    def is_finished(self) -> bool:
        """Whether the last event has come."""
        return self._last is not None

    @property
    def new_tokens(self) -> int:
        """How many tokens have come so far."""
        with self._reading, self._lock:
            return len(self._tokens) + sum(len(event.token_ids) for event in self._events)

    @property
    def has_news(self) -> bool:
        """Whether `take` would return something."""
        return bool(self._events or self._unread)

    @property
    def is_read(self) -> bool:
        """Whether the last delta has been taken."""
        return self._end is not None and not self.has_news

    def take(self) -> Delta | None:
        """Return all that has come since the last call; None if nothing has."""
        with self._reading:
            delta = self._read()
            unread, self._unread = self._unread, []
            pieces = [*unread, *([] if delta is None else [delta])]
            return _joined(pieces) if pieces else None

    def choice(self) -> Choice:
        """Return the whole answer; only once it is finished."""
        with self._reading:
            delta = self._read()
            if delta is not None:  # a reader may still want it
                self._unread.append(delta)
            assert self._end is not None
            assert self._end.finish_reason is not None
            return Choice(
                index=self._index,
                text="".join(self._said),
                token_ids=tuple(self._tokens),
                finish_reason=self._end.finish_reason,
                logprobs=None if self._logprobs is None else tuple(self._logprobs),
                metrics=self._end.metrics or Metrics(),
                error=self._end.error,
            )

    def _read(self) -> Delta | None:
        with self._lock:
            events, self._events = self._events, []
        if not events:
            return None
        tokens = [token for event in events for token in event.token_ids]
        reported = [one for event in events for one in event.logprobs or ()]
        last = events[-1]
        delta = Delta(
            text=self._say(tokens, last),
            token_ids=tuple(tokens),
            logprobs=tuple(reported) if any(e.logprobs is not None for e in events) else None,
            finish_reason=last.finish,
            index=self._index,
            error=last.error,
            metrics=last.metrics,
        )
        self._keep(delta)
        return delta

    def _say(self, tokens: Sequence[int], last: Event) -> str:
        if self._text is None:
            return ""
        if last.finish is FinishReason.STOP and tokens and tokens[-1] in last.reply.stop_ids:
            tokens = tokens[:-1]  # a stop token is no part of the text
        said, _ = self._text.push(tokens)
        return said + self._text.finish() if last.finish is not None else said

    def _keep(self, delta: Delta) -> None:
        self._said.append(delta.text)
        self._tokens += delta.token_ids
        if delta.logprobs is not None:
            self._logprobs = [*(self._logprobs or ()), *delta.logprobs]
        if delta.finish_reason is not None:
            self._end = delta


def _reader() -> object:
    """Return who reads: the task of an event loop, or else the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return task or threading.current_thread()


def _joined(pieces: Sequence[Delta]) -> Delta:
    if len(pieces) == 1:
        return pieces[0]
    last = pieces[-1]
    reported = [one for piece in pieces for one in piece.logprobs or ()]
    return Delta(
        text="".join(piece.text for piece in pieces),
        token_ids=tuple(token for piece in pieces for token in piece.token_ids),
        logprobs=tuple(reported) if any(p.logprobs is not None for p in pieces) else None,
        finish_reason=last.finish_reason,
        index=last.index,
        error=last.error,
        metrics=last.metrics,
    )


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
