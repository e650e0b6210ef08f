"""Requests that wait, the smallest rank first, and when one more is too many."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from operator import attrgetter

from ostinato.llm.limits import Limits
from ostinato.llm.refusals import queue_full
from ostinato.llm.scheduler.progress import Progress

by_rank = attrgetter("rank")


class Ranked:
    """Requests in the order of their ranks, which are all different."""

    def __init__(self) -> None:
        self._in_order: list[Progress] = []

    def __len__(self) -> int:
        return len(self._in_order)

    @property
    def first(self) -> Progress:
        """The one whose turn comes first."""
        return self._in_order[0]

    @property
    def last(self) -> Progress:
        """The one whose turn comes last."""
        return self._in_order[-1]

    def in_order(self) -> tuple[Progress, ...]:
        """Return all of them as they stand now."""
        return tuple(self._in_order)

    def add(self, progress: Progress) -> None:
        """Put one where its rank belongs."""
        if not self._in_order or self._in_order[-1].rank < progress.rank:  # nearly every newcomer
            self._in_order.append(progress)
        else:
            insort(self._in_order, progress, key=by_rank)

    def remove(self, progress: Progress) -> None:
        """Take one out, which must be there."""
        at = bisect_left(self._in_order, progress.rank, key=by_rank)
        assert self._in_order[at] is progress
        del self._in_order[at]


class Waiting(Ranked):
    """The queue: ranked, and bounded for those who come new."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._limits = limits
        self._tokens = 0

    @property
    def tokens(self) -> int:
        """How many known tokens wait to be prefilled."""
        return self._tokens

    def check_room(self, prompt_tokens: int, newcomers: int = 1, ahead: Sequence[int] = ()) -> None:
        """Refuse newcomers of one and the same prompt whom the bounds leave no room.

        A preempted request comes back without asking: it was let in before.

        Args:
            ahead: The prompt tokens of each that was let in, and is still to come here.

        Raises:
            QueueFull: OST5101, too many requests or too many tokens wait.
        """
        most, most_tokens = self._limits.max_waiting, self._limits.max_waiting_tokens
        if newcomers < 1:
            return
        waiting, tokens = len(self) + len(ahead), self._tokens + sum(ahead)
        is_long = waiting > 0 and tokens + newcomers * prompt_tokens > most_tokens
        if is_long or waiting + newcomers > most:
            raise queue_full(waiting, tokens, most, most_tokens, prompt_tokens)

    def add(self, progress: Progress) -> None:
        super().add(progress)
        self._tokens += len(progress.tokens)

    def remove(self, progress: Progress) -> None:
        super().remove(progress)
        self._tokens -= len(progress.tokens)

    def discard(self, progress: Progress) -> None:
        """Take one out that may be there, or half there."""
        self._in_order = [each for each in self._in_order if each is not progress]
        self._tokens = sum(len(each.tokens) for each in self._in_order)

    def lengthened(self, tokens: int) -> None:
        """Count `tokens` that a launch brought to a request which waits again."""
        self._tokens += tokens
