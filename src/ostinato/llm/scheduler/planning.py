"""How one plan is made: keep those who run going, then prefill, then admit, then lengthen.

Rank decides throughout (`waiting.py`): the smallest is served first and preempted last. The request
of the smallest rank is therefore never preempted while another runs, nobody passes the head of the
queue, and a level of priority is worth a finite time: each request's turn comes. Short prompts do
not wait behind long ones: while others want the budget, one prompt gets a quarter of it.
"""

from __future__ import annotations

from ostinato.llm.scheduler.ledger import Ledger
from ostinato.llm.scheduler.plan import Chunk, Note, Plan, PrefillNote
from ostinato.llm.scheduler.progress import Progress
from ostinato.llm.scheduler.waiting import by_rank

_SHARES = 4  # of the prefill budget: that many long prompts advance side by side


class Planning:
    """The making of one plan on the books of `ledger`.

    Most rows of most plans need nothing but another launch. So each is looked at once, and what
    follows speaks of those alone that need something.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._limits = ledger.limits
        self._left = self._limits.prefill_tokens
        self._fair_share = max(self._limits.page_tokens, self._left // _SHARES)
        self._preempted: list[Progress] = []
        self._prefilling: list[Progress] = []
        self._rows: list[Progress] = []  # of the launch, first rank first
        self._grown: set[Progress] = set()
        self._chunks: dict[Progress, int] = {}
        self._arriving: dict[Progress, None] = {}  # ordered, and quick to ask
        self._prefill_waits = False

    def make(self) -> tuple[Plan, Note]:
        """Return the plan, with the note of what it puts under way."""
        self._keep_going()
        self._go_on_prefilling()
        self._admit()
        self._hand_out_the_rest()
        self._begin_chunks()
        joining = [p for p in self._arriving if p.to_prefill == 0]
        if joining:
            self._rows = sorted(self._rows + joining, key=by_rank)
        steps = self._steps(joining)
        if steps > 1:
            steps = self._lengthen(steps)
        return self._write(joining, steps)

    def _keep_going(self) -> None:
        """Find who decodes and who is still prefilled, of those who keep their rows."""
        for progress in self._ledger.running.in_order():
            if progress.row is None:
                continue  # Preempted a moment ago.
            if progress.to_prefill > 0:
                self._prefilling.append(progress)
            elif progress.can_decode:
                short = progress.pages_short(1, self._limits.page_tokens)
                if not short or self._find_room(progress, short):
                    self._rows.append(progress)

    def _find_room(self, progress: Progress, short: int) -> bool:
        """Grant a row the pages it lacks for one step, if it takes preemption; False if its own.

        The last rank is preempted first, so never somebody who was looked at before.
        """
        while not self._ledger.grow({progress: short}):
            last = self._ledger.running.last
            self._ledger.preempt(last)
            self._preempted.append(last)
            if last is progress:
                return False
        self._grown.add(progress)
        return True

    def _go_on_prefilling(self) -> None:
        for progress in self._prefilling:
            self._give(progress, self._fair_share)

    def _admit(self) -> None:
        """Admit from the head of the queue until a row, pages or the budget run out.

        A page is left over for each running request that may grow: to admit another into its last
        page, and to preempt that one a moment later, would be work for nothing.
        """
        ledger = self._ledger
        if not ledger.can_admit:
            return
        left_over = sum(ledger.may_grow(p) for p in ledger.running.in_order())
        while ledger.can_admit:
            head = ledger.waiting.first
            if head.in_flight:
                return  # Preempted a moment ago: a launch under way may still end it.
            found = ledger.holdings.find(head)
            has_to_prefill = len(found.pages) * self._limits.page_tokens < len(head.tokens) - 1
            if has_to_prefill and not self._left:
                self._prefill_waits = True
                return
            if not ledger.admit(head, found, left_over):
                return
            left_over += ledger.may_grow(head)
            self._arriving[head] = None
            self._give(head, self._fair_share)

    def _give(self, progress: Progress, most: int) -> None:
        count = min(most, self._left, progress.to_prefill - self._chunks.get(progress, 0))
        if count > 0:
            self._chunks[progress] = self._chunks.get(progress, 0) + count
            self._left -= count

    def _hand_out_the_rest(self) -> None:
        if self._left:
            for progress in sorted([*self._prefilling, *self._arriving], key=by_rank):
                self._give(progress, self._left)

    def _begin_chunks(self) -> None:
        for progress, count in self._chunks.items():
            progress.planned += count
            self._arriving[progress] = None

    def _steps(self, joining: list[Progress]) -> int:
        """Return how many steps the launch should have.

        A prompt that is half prefilled would wait for the whole launch, so there is one step only
        while one is, and few while somebody awaits the first token.
        """
        if not self._rows:
            return 0
        if self._prefill_waits or any(
            p.to_prefill > 0 for p in (*self._prefilling, *self._arriving)
        ):
            return 1
        steps = self._limits.steps_per_launch
        if any(not p.new_tokens for p in joining):
            steps = min(steps, self._limits.steps_with_newcomer(len(self._rows)))
        if steps > 1 and not any(p.most_steps >= steps for p in self._rows):
            steps = max(p.most_steps for p in self._rows)
        return steps

    def _lengthen(self, steps: int) -> int:
        """Return how many of these steps to launch, having granted the pages for them.

        Each row has the pages for one. Fewer steps cost less than a preemption, so those bring the
        pages for more.
        """
        short = self._short(steps)
        while not self._ledger.grow(short):
            steps //= 2
            short = self._short(steps)
        self._grown |= short.keys()
        return steps

    def _short(self, steps: int) -> dict[Progress, int]:
        short = {}
        page_tokens = self._limits.page_tokens
        for progress in self._rows:
            count = progress.pages_short(steps, page_tokens)
            if count:
                short[progress] = count
        return short

    def _write(self, joining: list[Progress], steps: int) -> tuple[Plan, Note]:
        prefill, chunks = [], []
        for progress, count in self._chunks.items():
            start = progress.planned - count
            chunks.append(Chunk(progress.request_id, start, count, progress.to_prefill == 0))
            prefill.append(PrefillNote(progress, progress.stay, progress.planned))
        for progress in self._rows:
            progress.in_flight += progress.steps_of(steps)
        self._grown.difference_update(joining)
        plan = Plan(
            preempted=tuple(p.request_id for p in self._preempted),
            prefill=tuple(chunks),
            joining=tuple(p.request_id for p in joining),
            grown=tuple(p.request_id for p in self._rows if p in self._grown),
            decode=tuple(p.request_id for p in self._rows),
            steps=steps,
            single=frozenset(p.request_id for p in self._rows if p.is_single),
        )
        return plan, Note(tuple(prefill), tuple(self._rows), steps)
