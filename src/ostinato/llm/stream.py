"""An answer as it comes, read from any thread or event loop.

The engine's loop puts tokens down and goes on; it never waits for a reader. Who reads takes what
has come since, so a slow reader gets fewer and larger pieces, and what waits for it is bounded by
the answer's own length. Tokens become text in the reader's thread, not in the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import ref

from ostinato.errors import UsageError
from ostinato.llm.answers import Choice, Delta, Metrics, Output
from ostinato.llm.event_loops import EventLoops
from ostinato.llm.refusals import shown
from ostinato.llm.request import FinishReason
from ostinato.llm.values import read_timeout
from ostinato.llm.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostinato.llm.reply import Event
    from ostinato.llm.resident_launch import TokenLogprobs
    from ostinato.llm.text import AnswerText

_Part = TypeVar("_Part")


class Stream:
    """The `n` answers to one request.

    Iterate over it, with `async for` or `for`, to get each `Delta` once; or call `result`, which
    gives the whole answers however much was read before. Of two readers each gets what the other
    has not, and both see the end. A reader that has seen the end and begins again is refused
    (UsageError, OST5048), for it would find nothing.

    A stream that is dropped does not end its request, which runs to its end as others do: call
    `cancel` when nobody wants the answer any more.

    Args:
        request_id: Of the request.
        prompt_ids: Of the request.
        channels: One for each answer.
        cancel: Ends the request.
        loops: The event loops of the engine; None: of no other stream.
        check_wait: Raises why there is nothing to wait for, if that is so; None: there is.
    """

    def __init__(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        channels: Sequence[Channel],
        cancel: Callable[[], None],
        loops: EventLoops | None = None,
        check_wait: Callable[[], None] | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt_ids = prompt_ids if isinstance(prompt_ids, tuple) else tuple(prompt_ids)
        self._channels = tuple(channels)
        self._cancel, self._check_wait = cancel, check_wait
        self._await_news, self._await_end = Waiters(loops), Waiters(loops)
        self._through: list[ref[object]] = []  # the readers that have seen the end
        for channel in self._channels:
            channel.await_news, channel.await_end = self._await_news, self._await_end

    def cancel(self) -> None:
        """End the request wherever it is; what has come stays readable. Never waits."""
        self._cancel()

    @property
    def is_finished(self) -> bool:
        """Whether nothing more comes; there may be deltas left to read."""
        return self._has_ended()

    def _has_ended(self) -> bool:
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
            EngineDown: OST5145, the engine is in another process.
        """
        timeout = read_timeout("timeout", timeout)
        self._require_coming()
        if not self._await_end.wait_for(self._has_ended, timeout):
            raise TimeoutError(
                f"request {shown(self.request_id)} is not finished after {timeout} s"
            )
        return self._output()

    async def wait(self) -> Output:
        """Do as `result`, in an event loop."""
        self._require_coming()
        await self._await_end.wait_in_loop(self._has_ended)
        return self._output()

    def __iter__(self) -> Iterator[Delta]:
        self._require_unread()
        return self._deltas()

    def _deltas(self) -> Iterator[Delta]:
        while (delta := self._next_delta()) is not None or not self._is_read():
            if delta is not None:
                yield delta
                continue
            self._require_coming()
            self._await_news.wait_for(self._may_go_on)
        self._note_end()

    def __aiter__(self) -> AsyncIterator[Delta]:
        self._require_unread()
        return self

    def _require_unread(self) -> None:
        if self._has_seen_end(_reader()):
            raise UsageError(
                f"the stream of {shown(self.request_id)} has been read to its end, and gives each "
                "piece once",
                code="OST5048",
                remedy="call result(), which gives the whole answers however often, or keep the "
                "pieces as they come",
            )

    def _require_coming(self) -> None:
        """Refuse to wait for what can never come."""
        if self._check_wait is not None and not self._has_ended():
            self._check_wait()

    def _note_end(self) -> None:
        """Remember who has seen the end."""
        if not self._has_seen_end(_reader()):
            self._through.append(ref(_reader()))  # at once: two may see it at the same moment

    def _has_seen_end(self, reader: object) -> bool:
        return any(seen() is reader for seen in self._through)

    async def __anext__(self) -> Delta:
        while (delta := self._next_delta()) is None:
            if self._is_read():
                self._note_end()
                raise StopAsyncIteration
            self._require_coming()
            await self._await_news.wait_in_loop(self._may_go_on)
        return delta

    def _next_delta(self) -> Delta | None:
        for channel in self._channels:
            delta = channel.take()
            if delta is not None:
                if self._is_read():
                    self._await_news.tell()  # another reader, for whom nothing more comes
                return delta
        return None

    def _is_read(self) -> bool:
        return all(channel.is_read for channel in self._channels)

    def _may_go_on(self) -> bool:
        return any(channel.has_news for channel in self._channels) or self._is_read()

    def _output(self) -> Output:
        choices = tuple(channel.choice() for channel in self._channels)
        return Output(self.request_id, self.prompt_ids, choices)


class _Piece(NamedTuple):
    """What a delta will say.

    Attributes:
        last: The newest event that it was made of.
        end: How many of its channel's events it and the pieces before it were made of.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None
    last: Event
    end: int


class Channel:
    """One answer: the loop puts events in, one reader takes deltas out.

    Args:
        index: Which of the `n` answers.
        text: Makes the text; None where there is no tokenizer.

    Attributes:
        is_finished: Whether the last event has come.
        new_tokens: How many tokens have come so far.
        await_news, await_end: Who waits for the next event, and who for the last; the stream's.
    """

    await_news: Waiters
    await_end: Waiters

    def __init__(self, index: int, text: AnswerText | None) -> None:
        self._index, self._text = index, text
        self.is_finished = False
        self.new_tokens = 0
        self._events: list[Event] = []
        self._reading = threading.Lock()  # a reader and `choice` must not cut one text in two
        self._pieces: list[_Piece] = []
        self._given = 0  # pieces that a reader has
        self._told = 0  # events whose tokens the text has taken; -1 while it takes some

    def put(self, event: Event) -> None:
        """Take an event; in the loop's thread. Never waits for a reader."""
        self.new_tokens += len(event.token_ids)
        self._events.append(event)
        if event.finish is not None:
            self.is_finished = True
            self.await_end.tell()
        self.await_news.tell()

    @property
    def has_news(self) -> bool:
        """Whether `take` would return something."""
        with self._reading:
            return self._has_news

    @property
    def is_read(self) -> bool:
        """Whether the last delta has been taken."""
        with self._reading:
            return self._is_through and not self._has_news

    @property
    def _has_news(self) -> bool:
        return self._given < len(self._pieces) or self._end < len(self._events)

    @property
    def _end(self) -> int:
        return self._pieces[-1].end if self._pieces else 0

    @property
    def _is_through(self) -> bool:
        return bool(self._pieces) and self._pieces[-1].last.finish is not None

    def take(self) -> Delta | None:
        """Return the next piece: mostly all that has come since the last; None if nothing has."""
        with self._reading:
            if self._given == len(self._pieces):
                self._read()
            if self._given == len(self._pieces):
                return None
            piece = self._pieces[self._given]
            self._given += 1
        return Delta(
            text=piece.text,
            token_ids=piece.token_ids,
            logprobs=piece.logprobs,
            finish_reason=piece.last.finish,
            index=self._index,
            error=piece.last.error,
            metrics=piece.last.metrics,
        )

    def choice(self) -> Choice:
        """Return the whole answer; only once it is finished."""
        with self._reading:
            self._read()
        pieces, last = self._pieces, self._pieces[-1].last
        assert last.finish is not None
        return Choice(
            index=self._index,
            text="".join([piece.text for piece in pieces]),
            token_ids=_joined([piece.token_ids for piece in pieces]),
            finish_reason=last.finish,
            logprobs=_reported(pieces),
            metrics=last.metrics or Metrics(),
            error=last.error,
        )

    def _read(self) -> None:
        """Make a piece of what has come since the last one, if anything has.

        Until it is appended nothing has been read: wherever a thread is interrupted, the next one
        that reads makes the same piece, or a longer one.
        """
        begin = self._end
        events = self._events[begin:]
        if not events:
            return
        tokens, last = _joined([event.token_ids for event in events]), events[-1]
        text = "" if self._text is None else self._say(tokens, last, begin)
        end = begin + len(events)
        self._pieces.append(_Piece(text, tokens, _reported(events), last, end))
        self._told = end

    def _say(self, tokens: Sequence[int], last: Event, begin: int) -> str:
        """Return what the text says of `tokens`, those of the first `begin` events being said."""
        assert self._text is not None
        if self._told != begin:  # interrupted, it has taken tokens that nobody has read
            self._text = self._text.anew()
            self._text.push(_joined([event.token_ids for event in self._events[:begin]]))
        self._told = -1
        if last.finish is FinishReason.STOP and tokens and tokens[-1] in last.reply.stop_ids:
            tokens = tokens[:-1]  # a stop token is no part of the text
        said, _ = self._text.push(tokens)
        return said + self._text.finish() if last.finish is not None else said


def _joined(parts: Sequence[tuple[_Part, ...]]) -> tuple[_Part, ...]:
    if len(parts) == 1:
        return parts[0]
    whole: list[_Part] = []
    for part in parts:  # a chain, asked for each in turn, takes three times as long
        whole += part
    return tuple(whole)


def _reported(parts: Sequence[Event | _Piece]) -> tuple[TokenLogprobs, ...] | None:
    reports = [part.logprobs for part in parts if part.logprobs is not None]
    return _joined(reports) if reports else None


def _reader() -> object:
    """Return who reads: the task of an event loop, or else the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return task or threading.current_thread()
