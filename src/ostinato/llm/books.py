"""The scheduler and the living replies, behind one lock.

Requests come in from any thread; the step asks and books in its own. Everything here is over in
microseconds, and no launch is made while the lock is held, so nobody who submits waits for a step.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import PrefixIndex
from ostinato.llm.refusals import taken_name
from ostinato.llm.scheduler import Chunk, Counts, Plan, Scheduler, Seat, Stretch

if TYPE_CHECKING:
    from ostinato.llm.limits import Limits
    from ostinato.llm.reply import Reply
    from ostinato.llm.request import FinishReason, Request


class Books:
    """Who asked, and how far each has come."""

    def __init__(self, limits: Limits, pages: int, *, prefix_cache: bool) -> None:
        pool = PagePool(pages)
        self.capacity = pool.capacity
        self._limits = limits
        self._scheduler = Scheduler(limits, pool, PrefixIndex(pool) if prefix_cache else None)
        self._lock = threading.Lock()
        self._replies: dict[str, Reply] = {}
        self._followers: dict[str, tuple[Reply, ...]] = {}
        # Their prompt tokens, of those that the scheduler does not know yet: they wait for their
        # grammar, or for the request they follow. They take the queue's room all the same.
        self._ahead: dict[str, int] = {}
        self._has_room = True

    def submit(self, replies: Sequence[Reply]) -> None:
        """Let one request in, of which there are as many as there are `replies`.

        The first waits for its turn. The others follow it (`let_followers_in`), when its prompt is
        cached; the queue must have room for all of them now.

        Raises:
            PromptTooLong, QueueFull, UsageError: As `Scheduler.submit`.
        """
        with self._lock:
            self._check_entry(replies)
            try:
                self._enter(replies, ahead=replies[1:])
                self._queue(replies)
            except BaseException:  # the caller was interrupted
                self._withdraw(replies)
                raise

    def check_length(self, request: Request) -> None:
        """Refuse a prompt that could never run; see `Scheduler.check_length`."""
        self._scheduler.check_length(request)

    def expect(self, replies: Sequence[Reply]) -> None:
        """Do as `submit`, but let them wait for `admit` before they wait for their turn."""
        with self._lock:
            self._check_entry(replies)
            try:
                self._enter(replies, ahead=replies)
            except BaseException:  # the caller was interrupted
                self._withdraw(replies)
                raise

    def admit(self, replies: Sequence[Reply]) -> None:
        """Let those wait for their turn who were expected."""
        living = [reply for reply in replies if not reply.is_over]
        if living:
            with self._lock:
                self._queue(living)

    def _check_entry(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if reply.request_id in self._replies:
                raise taken_name(reply.request_id)
        ahead = tuple(self._ahead.values())
        self._scheduler.check_room(replies[0].request, room_for=len(replies), ahead=ahead)

    def _enter(self, replies: Sequence[Reply], ahead: Sequence[Reply]) -> None:
        for reply in replies:
            self._replies[reply.request_id] = reply
        for reply in ahead:
            self._ahead[reply.request_id] = len(reply.request.prompt_ids)

    def _withdraw(self, replies: Sequence[Reply]) -> None:
        """Leave everything as if nobody had tried to let `replies` in."""
        for reply in replies:
            self._replies.pop(reply.request_id, None)
            self._ahead.pop(reply.request_id, None)
        self._followers.pop(replies[0].request_id, None)
        self._scheduler.withdraw(replies[0].request_id)

    def _queue(self, replies: Sequence[Reply]) -> None:
        first, *followers = replies
        self._scheduler.submit(first.request, room_for=0)
        self._ahead.pop(first.request_id, None)
        if followers:
            self._followers[first.request_id] = tuple(followers)

    def let_followers_in(self, request_id: str) -> None:
        """Let those wait who follow a request, now that its prompt is cached or it is over."""
        if request_id in self._followers:
            with self._lock:
                for follower in self._followers.pop(request_id):
                    if not follower.is_over:
                        self._scheduler.submit(follower.request, room_for=0)
                        self._ahead.pop(follower.request_id, None)

    @property
    def has_room(self) -> bool:
        """Whether the last plan left a free row, and nobody before a newcomer to take it."""
        return self._has_room

    def plan(self) -> Plan:
        """Return what to do next; see `Scheduler.plan`."""
        with self._lock:
            plan = self._scheduler.plan()
            counts = self._scheduler.counts()
            self._has_room = counts.running < self._limits.max_batch and not counts.waiting
            for request_id in {*(chunk.request_id for chunk in plan.prefill), *plan.joining}:
                self._note_admission(self._replies[request_id])
            return plan

    def _note_admission(self, reply: Reply) -> None:
        if reply.clock.admitted_s is None:
            reply.clock.admitted_s = monotonic()
            reply.cached_tokens = self._scheduler.cached_tokens(reply.request_id)

    def advance(
        self, tokens: Mapping[str, Sequence[int]], finished: Mapping[str, FinishReason]
    ) -> dict[str, FinishReason]:
        """Book what the oldest plan under way brought, and forget those that are over."""
        with self._lock:
            over = self._scheduler.advance(tokens, finished)
            for request_id in over:
                del self._replies[request_id]
            return over

    def remove(self, request_id: str) -> Reply | None:
        """End a request, wherever it is; None if it does not live."""
        with self._lock:
            reply = self._replies.pop(request_id, None)
            if reply is not None:
                self._ahead.pop(request_id, None)
                self._scheduler.cancel(request_id)
            return reply

    def remove_running(self) -> list[Reply]:
        """End every request that has a row, and give up all plans under way."""
        with self._lock:
            running = [each for each in self._replies.values() if self._runs(each.request_id)]
            for reply in running:
                del self._replies[reply.request_id]
                self._scheduler.cancel(reply.request_id)
            while self._scheduler.counts().under_way:
                self._scheduler.advance({})
            return running

    def _runs(self, request_id: str) -> bool:
        return self._scheduler.is_living(request_id) and (
            self._scheduler.row_of(request_id) is not None
        )

    def restart(self) -> list[Reply]:
        """Send all running requests back to be prefilled anew; return them."""
        with self._lock:
            return [self._replies[name] for name in self._scheduler.restart()]

    def forget_prefixes(self) -> None:
        """Let nobody find what was computed until now."""
        with self._lock:
            self._scheduler.forget_prefixes()

    def reply(self, request_id: str) -> Reply:
        """Return a living request."""
        return self._replies[request_id]

    def is_living(self, reply: Reply) -> bool:
        """Whether a request is not over; another that has taken its name does not count."""
        return self._replies.get(reply.request_id) is reply

    def living(self) -> list[Reply]:
        """Return all requests that are not over."""
        with self._lock:
            return list(self._replies.values())

    # Without the lock, as `reply`: how far somebody has come is changed by the thread of the steps
    # alone, which asks here what its own plan holds.

    def stretch(self, chunk: Chunk) -> Stretch:
        """Return what a chunk of a plan is to prefill."""
        return self._scheduler.stretch_of(chunk)

    def seat(self, request_id: str) -> Seat:
        """Return the seat of a request that joins."""
        return self._scheduler.seat_of(request_id)

    def pages_of(self, request_id: str, start: int = 0) -> tuple[int, ...]:
        """Return the pages of a living request, from `start` on."""
        return self._scheduler.pages_of(request_id, start)

    @property
    def has_work(self) -> bool:
        """Whether a step has something to do; of no use to others than the thread of the steps."""
        return not self._scheduler.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether no request lives and nothing is under way."""
        with self._lock:
            return not self._replies and self._scheduler.is_idle

    def counts(self) -> Counts:
        """Return how the scheduler stands."""
        with self._lock:
            return self._scheduler.counts()

    def check_integrity(self) -> None:
        """Check that every page is held by those who say so.

        Raises:
            InternalError: OST5190.
        """
        with self._lock:
            self._scheduler.check_integrity()
