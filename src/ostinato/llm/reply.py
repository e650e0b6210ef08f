"""One request on its way to its reply: what the step knows of it beside the scheduler's books."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ostinato.errors import OstinatoError
from ostinato.llm.answers import Metrics
from ostinato.llm.request import FinishReason, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ostinato.llm.resident_launch import TokenLogprobs
    from ostinato.llm.text import AnswerText


class Grammar(Protocol):
    """What an answer must keep to; it stands where the tokens accepted so far have led."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing may follow."""
        ...

    def allowed_words(self) -> Tensor:
        """Return which tokens may come next: int32 words on the host, one bit per token."""
        ...

    def accept(self, token_ids: Sequence[int]) -> object:
        """Move on by tokens that were drawn."""
        ...


@dataclass(slots=True)
class Clock:
    """When things happened to a request, on the clock of its arrival."""

    arrived_s: float
    admitted_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None

    def metrics(self, tokens: int, cached_tokens: int) -> Metrics:
        """Return the times between."""
        tpot_s = None
        if tokens > 1 and self.first_s is not None and self.last_s is not None:
            tpot_s = (self.last_s - self.first_s) / (tokens - 1)
        return Metrics(
            ttft_s=self._since_arrival(self.first_s),
            tpot_s=tpot_s,
            queued_s=self._since_arrival(self.admitted_s),
            cached_tokens=cached_tokens,
        )

    def _since_arrival(self, at_s: float | None) -> float | None:
        return None if at_s is None else at_s - self.arrived_s


@dataclass(slots=True, eq=False)
class Reply:
    """A living request.

    Attributes:
        request: What was asked, for one answer.
        seed: Of its random numbers.
        stop_ids: What ends its row: the model's own ends, unless ignored, and the request's.
        sink: Takes what comes of it, in the thread that runs the step; None: nobody reads.
        watch: Reads along for stop texts; None if there are none.
        grammar: What it must keep to; None if anything goes.
        allowed: What the grammar lets come next.
        row: Where it sits in the resident state; None while it does not.
        produced: Tokens read so far.
        is_over: Whether it has ended; what a launch under way still brings is dropped.
        request_id: The request's name.
    """

    request: Request
    seed: int
    stop_ids: tuple[int, ...] = ()
    sink: Callable[[Event], None] | None = None
    watch: AnswerText | None = None
    grammar: Grammar | None = None
    allowed: Tensor | None = None
    row: int | None = None
    produced: int = 0
    cached_tokens: int = 0
    is_over: bool = False
    clock: Clock = field(init=False)
    request_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.request.arrival_s)
        self.request_id = self.request.request_id

    def note_tokens(self, count: int, now_s: float) -> bool:
        """Count tokens that were read at `now_s`, and say whether they are the first."""
        self.produced += count
        clock = self.clock
        clock.last_s = now_s
        if clock.first_s is not None:
            return False
        clock.first_s = now_s
        return True

    def metrics(self) -> Metrics:
        """Return how it went so far."""
        return self.clock.metrics(self.produced, self.cached_tokens)


@dataclass(slots=True, eq=False)
class Event:
    """News of one request; whoever takes it may keep it, and changes nothing.

    It is not frozen: one is made for every row of every launch, in a third of the time.

    Attributes:
        reply: Whose.
        token_ids: New tokens, often none.
        logprobs: One for each, if asked for.
        finish: Why it ended; None while it runs.
        error: What went wrong, where `finish` is "error".
        metrics: How it went, with the last news.
    """

    reply: Reply
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish: FinishReason | None = None
    error: OstinatoError | None = None
    metrics: Metrics | None = None

    @property
    def request_id(self) -> str:
        """The request's name."""
        return self.reply.request_id
