"""The scheduler as the engine sees it.

The engine asks for a plan, launches it, asks for the next one while that runs, and books what each
launch brought, the oldest first. So a plan is made without the tokens of the one before it: what is
under way counts as if it all came. Nothing here reads a clock or a device.

Rows and pages are given to the next request as soon as the books know them free. That is right only
if whatever the engine does to rows and pages is queued on one stream, in the order of the plans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import PrefixIndex
from ostinato.llm.limits import Limits
from ostinato.llm.request import FinishReason, Request
from ostinato.llm.scheduler.ledger import Ledger
from ostinato.llm.scheduler.plan import Chunk, Note, Plan, Seat, Stretch
from ostinato.llm.scheduler.planning import Planning
from ostinato.llm.scheduler.progress import Progress


@dataclass(frozen=True, slots=True)
class Counts:
    """How the scheduler stands.

    Attributes:
        waiting: Requests in the queue.
        waiting_tokens: Their known tokens.
        running: Requests in rows.
        under_way: Plans launched and not yet advanced.
        available_pages: Pages that could be granted, idle cached ones included.
        idle_pages: Pages kept only for their content.
        preemptions: How often a request was sent back to wait, ever.
        prompt_tokens: Prompt tokens of all requests admitted, ever.
        cached_tokens: Those of them that were found in the prefix index.
    """

    waiting: int
    waiting_tokens: int
    running: int
    under_way: int
    available_pages: int
    idle_pages: int
    preemptions: int
    prompt_tokens: int
    cached_tokens: int


class Scheduler:
    """Decides who runs in the next launch.

    Args:
        limits: What may run and wait at once.
        pool: The pages of the store.
        prefix: The index over the same pool, or None to cache no prefixes.
    """

    def __init__(self, limits: Limits, pool: PagePool, prefix: PrefixIndex | None = None) -> None:
        self._ledger = Ledger(limits, pool, prefix)
        self._under_way: deque[Note] = deque()

    def submit(self, request: Request, *, room_for: int = 1) -> None:
        """Let a request wait for its turn.

        Args:
            request: What is asked.
            room_for: For how many such requests the queue must have room, others being about to
                follow this one; 0: it was let in before, and comes whatever the bounds say.

        Raises:
            PromptTooLong: OST5002, the model or the pages could never hold it and one new token.
            QueueFull: OST5101, too many wait already.
            UsageError: OST5008, a living request has the same id.
        """
        self._ledger.enter(request, room_for)

    def withdraw(self, request_id: str) -> None:
        """Undo a `submit` that was interrupted, wherever it stood.

        For a request that has just come and was planned by nobody.
        """
        self._ledger.withdraw(request_id)

    def check_room(self, request: Request, *, room_for: int = 1, ahead: Sequence[int] = ()) -> None:
        """Refuse what `submit` would refuse, and let nobody in.

        Args:
            ahead: The prompt tokens of each that was let in elsewhere and will be submitted later
                with `room_for` 0: it takes its room already.

        Raises:
            PromptTooLong, QueueFull, UsageError: As `submit`.
        """
        self._ledger.check_entry(request, room_for, ahead)

    def check_length(self, request: Request) -> None:
        """Refuse a prompt that could never run; of limits that never change, so from any thread.

        Raises:
            PromptTooLong: OST5002, as `submit`.
        """
        self._ledger.room_for_answer(len(request.prompt_ids))

    def cancel(self, request_id: str) -> bool:
        """End a request, waiting or running; False if it does not live any more.

        Its row must be taken out of the resident state before the next plan is launched. What a
        launch under way brings for it is dropped.
        """
        progress = self._ledger.live.get(request_id)
        if progress is None:
            return False
        self._ledger.retire(progress)
        return True

    def plan(self) -> Plan:
        """Return what to do next; an empty plan, if nothing can run before the next `advance`."""
        plan, note = Planning(self._ledger).make()
        if not plan.is_empty:
            self._under_way.append(note)
        return plan

    def advance(
        self,
        tokens: Mapping[str, Sequence[int]],
        finished: Mapping[str, FinishReason] | None = None,
    ) -> dict[str, FinishReason]:
        """Book what the oldest plan under way brought.

        Args:
            tokens: New tokens by request; none for a row that brought nothing.
            finished: Requests that ended, and how. Those that ended in an error leave nothing in
                the prefix index: what they computed is not to be trusted.

        Returns:
            All requests that are over now: those of `finished`, and those whose budget is used up.
        """
        assert self._under_way, "nothing is under way"
        note = self._under_way.popleft()
        over = dict(finished or {})
        self._book_tokens(note, tokens, over)
        self._book_prefilled(note)
        self._publish(note, over)
        living = {name: over[name] for name in over if name in self._ledger.live}
        for name, reason in living.items():
            if reason is FinishReason.ERROR:
                self._ledger.holdings.disown(self._ledger.live[name])
            self._ledger.retire(self._ledger.live[name])
        return living

    def _book_tokens(
        self, note: Note, tokens: Mapping[str, Sequence[int]], over: dict[str, FinishReason]
    ) -> None:
        late = dict(tokens)
        for progress in note.decode:
            steps = progress.steps_of(note.steps)
            progress.in_flight -= steps
            new = late.pop(progress.request_id, ())
            if progress.is_live:
                assert len(new) <= steps, f"{progress.request_id} brought {len(new)} tokens"
                self._book_new(progress, new, over)
        # The plan thought these to have their last tokens under way. A launch before was cut short,
        # so that they had some left; they have the pages for those.
        for request_id, new in late.items():
            if request_id in self._ledger.live:
                self._book_new(self._ledger.live[request_id], new, over)

    def _book_new(
        self, progress: Progress, new: Sequence[int], over: dict[str, FinishReason]
    ) -> None:
        if self._ledger.append(progress, new):
            over.setdefault(progress.request_id, FinishReason.LENGTH)

    def _book_prefilled(self, note: Note) -> None:
        for chunk in note.prefill:
            progress = chunk.progress
            if progress.row is not None and progress.stay == chunk.stay:
                progress.written = max(progress.written, chunk.end)

    def _publish(self, note: Note, over: Mapping[str, FinishReason]) -> None:
        """Let others find what is written now, but for what ended in an error."""
        launched = chain((chunk.progress for chunk in note.prefill), note.decode)
        self._ledger.holdings.publish(
            progress
            for progress in launched
            if over.get(progress.request_id) is not FinishReason.ERROR
        )

    def restart(self) -> tuple[str, ...]:
        """Send all running requests back to be prefilled again, and forget what is cached.

        For new weights, when requests in flight are to go on with them. Returns those sent back.
        """
        self._ledger.holdings.forget()
        running = self._ledger.running.in_order()
        for progress in running:
            self._ledger.preempt(progress)
        return tuple(progress.request_id for progress in running)

    def forget_prefixes(self) -> None:
        """Forget what is cached, and cache nothing that running requests have computed.

        For new weights, when requests in flight finish on what they have.
        """
        self._ledger.holdings.forget()
        for progress in self._ledger.running.in_order():
            progress.is_shareable = False

    def is_living(self, request_id: str) -> bool:
        """Return whether a request waits or runs."""
        return request_id in self._ledger.live

    def row_of(self, request_id: str) -> int | None:
        """Return the row of a living request, the same as long as it runs; None while it waits."""
        return self._living(request_id).row

    def pages_of(self, request_id: str, start: int = 0) -> tuple[int, ...]:
        """Return the pages of a living request from `start` on, in the order of its tokens."""
        return tuple(self._living(request_id).pages[start:])

    def tokens_of(self, request_id: str) -> tuple[int, ...]:
        """Return prompt and answer of a living request, as far as they are booked."""
        return tuple(self._living(request_id).tokens)

    def stretch_of(self, chunk: Chunk) -> Stretch:
        """Return what a chunk of a plan is to prefill."""
        progress = self._living(chunk.request_id)
        start = chunk.start
        return Stretch(progress.tokens[start : start + chunk.count], start, progress.pages[:])

    def seat_of(self, request_id: str) -> Seat:
        """Return where a request that joins sits down, and with what."""
        progress = self._living(request_id)
        assert progress.row is not None
        left = progress.budget - progress.new_tokens
        return Seat(progress.row, tuple(progress.tokens), left, tuple(progress.pages))

    def budget_of(self, request_id: str) -> int:
        """Return the most new tokens a living request gets, from the beginning of its answer."""
        return self._living(request_id).budget

    def cached_tokens(self, request_id: str) -> int:
        """Return how many prompt tokens of a living request were found; 0 before its admission."""
        return self._living(request_id).cached or 0

    def _living(self, request_id: str) -> Progress:
        return self._ledger.live[request_id]

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits, nobody runs and nothing is under way."""
        return not self._ledger.live and not self._under_way

    def counts(self) -> Counts:
        """Return how things stand."""
        ledger = self._ledger
        return Counts(
            waiting=len(ledger.waiting),
            waiting_tokens=ledger.waiting.tokens,
            running=len(ledger.running),
            under_way=len(self._under_way),
            available_pages=ledger.holdings.available,
            idle_pages=ledger.holdings.idle,
            preemptions=ledger.preemptions,
            prompt_tokens=ledger.prompt_tokens,
            cached_tokens=ledger.cached_tokens,
        )

    def check_integrity(self) -> None:
        """Check that each page is held by exactly the requests and the index that say so.

        Raises:
            InternalError: OST5190, with the first page that is wrong.
        """
        self._ledger.holdings.check_integrity(self._ledger.running.in_order())
