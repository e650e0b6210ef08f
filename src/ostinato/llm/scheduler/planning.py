"""How one plan is made: keep those who run going, then prefill, then admit, then lengthen.

Rank decides throughout (`waiting.py`): the smallest is served first and preempted last. The request
of the smallest rank is therefore never preempted while another runs, nobody passes the head of the
queue, and a level of priority is worth a finite time: each request's turn comes. Short prompts do
not wait behind long ones: while others want the budget, one prompt gets a quarter of it.
"""

from __future__ import annotations

from ostinato.llm.scheduler.ledger import Ledger
from ostinato.llm.scheduler.plan import Chunk, DecodeNote, Note, Plan, PrefillNote
from ostinato.llm.scheduler.progress import Progress

_SHARES = 4  # of the prefill budget: that many long prompts advance side by side


class Planning:
    """The making of one plan on the books of `ledger`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._limits = ledger.limits
        self._budget = self._left = self._most_prefilled()
        self._preempted: list[Progress] = []
        self._chunks: dict[Progress, int] = {}
        self._arriving: dict[Progress, None] = {}  # ordered, and quick to ask
        self._pages_before: dict[Progress, int] = {}
        self._prefill_waits = False

    def make(self) -> tuple[Plan, Note]:
        """Return the plan, with the note of what it puts under way."""
        self._keep_decoding()
        self._go_on_prefilling()
        self._admit()
        self._hand_out_the_rest()
        self._begin_chunks()
        rows = [p for p in self._ledger.running.in_order() if p.can_decode]
        steps = self._lengthen(rows)
        return self._write(rows, steps)

    def _most_prefilled(self) -> int:
        alone = self._limits.prefill_tokens_alone
        if alone is None or any(p.can_decode for p in self._ledger.running.in_order()):
            return self._limits.prefill_tokens
        return alone

    def _keep_decoding(self) -> None:
        """Grant every decoding row the pages for one step, if it takes preemption."""
        for progress in self._ledger.running.in_order():
            if progress.row is None or not progress.can_decode:
                continue
            self._pages_before[progress] = len(progress.pages)
            while not self._ledger.grow(progress, 1):
                last = self._ledger.running.last
                self._ledger.preempt(last)
                self._preempted.append(last)
                if last is progress:
                    break

    def _go_on_prefilling(self) -> None:
        for progress in self._ledger.running.in_order():
            if progress.to_prefill > 0:
                self._give(progress, self._fair_share)

    def _admit(self) -> None:
        """Admit from the head of the queue until a row, pages or the budget run out.

        A page is left over for each running request that may grow: to admit another into its last
        page, and to preempt that one a moment later, would be work for nothing.
        """
        ledger = self._ledger
        left_over = sum(ledger.may_grow(p) for p in ledger.running.in_order())
        while len(ledger.waiting) and ledger.rows.free:
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

    @property
    def _fair_share(self) -> int:
        return max(self._limits.page_tokens, self._budget // _SHARES)

    def _give(self, progress: Progress, most: int) -> None:
        count = min(most, self._left, progress.to_prefill - self._chunks.get(progress, 0))
        if count > 0:
            self._chunks[progress] = self._chunks.get(progress, 0) + count
            self._left -= count

    def _hand_out_the_rest(self) -> None:
        for progress in self._ledger.running.in_order():
            self._give(progress, self._left)

    def _begin_chunks(self) -> None:
        for progress, count in self._chunks.items():
            progress.planned += count
            self._arriving[progress] = None

    def _lengthen(self, rows: list[Progress]) -> int:
        """Return how many steps to launch, having granted the pages for them.

        A prompt that is half prefilled would wait for the whole launch, so there is one step only
        while one is, and few while somebody awaits the first token. Fewer steps cost less than a
        preemption, so those bring the pages.
        """
        if not rows:
            return 0
        is_prefilling = any(p.to_prefill > 0 for p in self._ledger.running.in_order())
        if is_prefilling or self._prefill_waits:
            return 1
        longest = max(1 if p.is_single else p.remaining for p in rows)
        steps = min(self._limits.steps_per_launch, longest)
        if any(p.to_prefill == 0 and not p.new_tokens for p in self._arriving):
            steps = min(steps, self._limits.steps_with_newcomer(len(rows)))
        while steps > 1 and self._pages_short(rows, steps) > self._ledger.holdings.available:
            steps //= 2
        for progress in rows:
            has_grown = self._ledger.grow(progress, steps)
            assert has_grown
        return steps

    def _pages_short(self, rows: list[Progress], steps: int) -> int:
        return sum(self._ledger.pages_short(p, steps) for p in rows)

    def _write(self, rows: list[Progress], steps: int) -> tuple[Plan, Note]:
        prefill, decode = [], []
        chunks = []
        for progress, count in self._chunks.items():
            start = progress.planned - count
            chunks.append(Chunk(progress.request_id, start, count, progress.to_prefill == 0))
            prefill.append(PrefillNote(progress, progress.stay, progress.planned))
        for progress in rows:
            own_steps = progress.steps_of(steps)
            decode.append(DecodeNote(progress, own_steps))
            progress.in_flight += own_steps
        plan = Plan(
            preempted=tuple(p.request_id for p in self._preempted),
            prefill=tuple(chunks),
            joining=tuple(p.request_id for p in self._arriving if p.to_prefill == 0),
            grown=tuple(p.request_id for p in rows if self._has_grown(p)),
            decode=tuple(p.request_id for p in rows),
            steps=steps,
            single=frozenset(p.request_id for p in rows if p.is_single),
        )
        return plan, Note(tuple(prefill), tuple(decode))

    def _has_grown(self, progress: Progress) -> bool:
        before = self._pages_before.get(progress)
        return before is not None and len(progress.pages) > before
