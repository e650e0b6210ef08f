"""The books: who lives, who waits, who runs in which row with which pages.

Each method is one entry that leaves the books whole. What should happen is decided elsewhere:
`planning` decides what to run, `facade` books what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import Found, PageKeys, PrefixIndex
from ostinato.llm.limits import Limits
from ostinato.llm.refusals import prompt_too_long, taken_name
from ostinato.llm.request import Request
from ostinato.llm.scheduler.holdings import Holdings
from ostinato.llm.scheduler.progress import Progress
from ostinato.llm.scheduler.rows import Rows
from ostinato.llm.scheduler.waiting import Ranked, Waiting


class Ledger:
    """Every living request is either in `waiting` or in `running`."""

    def __init__(self, limits: Limits, pool: PagePool, prefix: PrefixIndex | None) -> None:
        self.limits = limits
        self.holdings = Holdings(pool, prefix, limits.page_tokens)
        self.rows = Rows(limits.max_batch)
        self.live: dict[str, Progress] = {}
        self.waiting = Waiting(limits)
        self.running = Ranked()
        self.submitted = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0

    def enter(self, request: Request, room_for: int = 1) -> Progress:
        """Let a request in to wait, or refuse it; see `Scheduler.submit`."""
        room = self.check_entry(request, room_for)
        progress = Progress(
            request=request,
            rank=(
                request.arrival_s + request.priority * self.limits.priority_s,
                self.submitted,
            ),
            budget=min(request.params.max_tokens, room),
            keys=PageKeys(request.salt, self.limits.page_tokens),
            tokens=list(request.prompt_ids),
        )
        self.submitted += 1
        self.live[request.request_id] = progress  # first: `withdraw` finds by its name who waits
        self.waiting.add(progress)
        return progress

    def withdraw(self, request_id: str) -> None:
        """Undo what `enter` did, were it interrupted half-way."""
        progress = self.live.pop(request_id, None)
        if progress is not None:
            self.waiting.discard(progress)

    def check_entry(self, request: Request, room_for: int = 1, ahead: Sequence[int] = ()) -> int:
        """Refuse a request that cannot come in; return how many tokens its answer may have."""
        if request.request_id in self.live:
            raise taken_name(request.request_id)
        room = self.room_for_answer(len(request.prompt_ids))
        self.waiting.check_room(len(request.prompt_ids), room_for, ahead)
        return room

    def room_for_answer(self, prompt_tokens: int) -> int:
        """Return how many tokens may follow a prompt of so many, or refuse it."""
        paged = self.holdings.capacity * self.limits.page_tokens
        model = self.limits.max_model_len
        if prompt_tokens >= model:
            raise prompt_too_long(
                prompt_tokens, model - 1, f"the model holds {model} tokens, the answer's included"
            )
        if prompt_tokens >= paged:
            raise prompt_too_long(
                prompt_tokens,
                paged - 1,
                f"all {self.holdings.capacity} pages hold {paged} tokens, the answer's included",
            )
        return min(model, paged) - prompt_tokens

    @property
    def can_admit(self) -> bool:
        """Whether somebody waits, and a row is free."""
        return len(self.waiting) > 0 and self.rows.free > 0

    def admit(self, progress: Progress, found: Found, left_over: int) -> bool:
        """Give a waiting request a row and the pages up to its first new token.

        False, and no change, if fewer than `left_over` pages would be left over.
        """
        needed = self.limits.pages_for(len(progress.tokens)) - len(found.pages)
        if self.holdings.available - found.idle < needed + left_over:
            return False
        pages = self.holdings.take(found)
        granted = self.holdings.grant(needed)
        assert granted is not None
        self.waiting.remove(progress)
        self.running.add(progress)
        self._begin_stay(progress, pages + granted, len(found.pages))
        return True

    def _begin_stay(self, progress: Progress, pages: list[int], known_pages: int) -> None:
        known = known_pages * self.limits.page_tokens
        progress.row = self.rows.take()
        progress.stay += 1
        progress.pages = pages
        progress.goal = len(progress.tokens) - 1
        progress.planned = progress.written = known
        progress.indexed = known_pages
        progress.is_shareable = True
        if progress.cached is None:
            progress.cached = known
            self.prompt_tokens += len(progress.tokens)
            self.cached_tokens += known

    def may_grow(self, progress: Progress) -> bool:
        """Return whether a running request may yet need more pages than it has."""
        return progress.final_tokens > len(progress.pages) * self.limits.page_tokens

    def grow(self, short: Mapping[Progress, int]) -> bool:
        """Grant running requests as many pages as they lack; False, and no change, if too few."""
        granted = self.holdings.grant(sum(short.values()))
        if granted is None:
            return False
        pages = iter(granted)
        for progress, count in short.items():
            progress.pages += islice(pages, count)
        return True

    def preempt(self, progress: Progress) -> None:
        """Send a running request back to wait; its known tokens stay, its pages go."""
        self.running.remove(progress)
        self._vacate(progress)
        self.waiting.add(progress)
        self.preemptions += 1

    def retire(self, progress: Progress) -> None:
        """End a living request, wherever it is."""
        if progress.row is None:
            self.waiting.remove(progress)
        else:
            self.running.remove(progress)
            self._vacate(progress)
        progress.is_live = False
        del self.live[progress.request_id]

    def _vacate(self, progress: Progress) -> None:
        assert progress.row is not None
        self.rows.give_back(progress.row)
        self.holdings.release(progress.leave_row())

    def append(self, progress: Progress, tokens: Sequence[int]) -> bool:
        """Add what a launch brought to a living request; return whether its budget is used up."""
        progress.tokens += tokens
        known = len(progress.tokens)
        if progress.row is None:
            self.waiting.lengthened(len(tokens))
        elif progress.written < known - 1:
            # In a row it is still in the one that ran: none comes back with tokens under way.
            progress.written = known - 1
        return known > progress.final_tokens
