"""An engine whose device is a dict: it does what plans say and checks each of them.

Its model is a chain: the "keys and values" of a token are a number made of the token and of the
number that stands in the slot before, and the next token is made of that number. So one wrong page,
wherever it comes from, changes an answer, and `ideal_answer` says what the answer should have been.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import PrefixIndex
from ostinato.llm.limits import Limits
from ostinato.llm.request import FinishReason, Request
from ostinato.llm.scheduler import Plan, Scheduler

VOCABULARY = 1000
END = 7


def state_after(before: int, token: int) -> int:
    return hash((before, token))


def ideal_answer(request: Request, budget: int) -> list[int]:
    state = 0
    for token in request.prompt_ids:
        state = state_after(state, token)
    answer: list[int] = []
    while len(answer) < budget and not (answer and answer[-1] == END):
        answer.append(state % VOCABULARY)
        state = state_after(state, answer[-1])
    return answer


@dataclass(slots=True)
class Row:
    request_id: str
    pages: tuple[int, ...]
    token: int
    position: int
    left: int


@dataclass(slots=True)
class Answer:
    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    budget: int = 0
    begun_at: int | None = None
    over_at: int | None = None


class PretendEngine:
    """Runs plans on a dict of slots.

    Args:
        scheduler: What makes the plans.
        limits: Those of `scheduler`.
        depth: 2 plans the next launch before the last one is drained, as the engine does.
        early: Ends some launches before their last step, as a newcomer does.
    """

    def __init__(
        self, scheduler: Scheduler, limits: Limits, *, depth: int = 1, early: Random | None = None
    ) -> None:
        self.scheduler = scheduler
        self.limits = limits
        self.depth = depth
        self.early = early
        self.slots: dict[int, int] = {}
        self.rows: dict[int, Row] = {}
        self.row_of: dict[str, int] = {}
        self.results: deque[tuple[Plan, dict[str, list[int]], dict[str, FinishReason]]] = deque()
        self.answers: dict[str, Answer] = {}
        self.plans = 0

    def submit(self, request: Request) -> None:
        self.scheduler.submit(request)
        self.answers[request.request_id] = Answer(
            budget=self.scheduler.budget_of(request.request_id)
        )

    def cancel(self, request_id: str) -> bool:
        was_living = self.scheduler.cancel(request_id)
        if was_living:
            self._leave(request_id)
            self._end(request_id, FinishReason.ABORT)
        return was_living

    def step(self) -> Plan:
        plan = self.scheduler.plan()
        self.check(plan)
        for request_id in plan.preempted:
            self._leave(request_id)
        for request_id in (*(chunk.request_id for chunk in plan.prefill), *plan.joining):
            answer = self.answers[request_id]
            answer.begun_at = self.plans if answer.begun_at is None else answer.begun_at
        for chunk in plan.prefill:
            self._prefill(chunk.request_id, chunk.start, chunk.count)
        for request_id in plan.joining:
            self._join(request_id)
        for request_id in plan.grown:
            self.rows[self.row_of[request_id]].pages = self.scheduler.pages_of(request_id)
        if not plan.is_empty:
            self.results.append((plan, *self._launch(plan)))
        if plan.is_empty or len(self.results) >= self.depth:
            self._drain()
        self.plans += 1
        return plan

    def restart(self) -> None:
        for request_id in self.scheduler.restart():
            self._leave(request_id)

    def run(self, most_plans: int = 100_000) -> None:
        for _ in range(most_plans):
            if self.scheduler.is_idle:
                return
            self.step()
        raise AssertionError(f"not idle after {most_plans} plans: {self.scheduler.counts()}")

    def check(self, plan: Plan) -> None:
        assert sum(chunk.count for chunk in plan.prefill) <= self.limits.prefill_tokens
        assert all(chunk.count >= 1 for chunk in plan.prefill)
        assert len(plan.decode) <= self.limits.max_batch
        assert plan.steps <= self.limits.steps_per_launch
        assert (plan.steps > 0) == bool(plan.decode)
        assert set(plan.joining) | set(plan.grown) | plan.single <= set(plan.decode)
        assert {c.request_id for c in plan.prefill if c.is_last} <= set(plan.joining)
        rows = [self.scheduler.row_of(request_id) for request_id in plan.decode]
        assert len(set(rows)) == len(rows)
        for request_id, row in zip(plan.decode, rows, strict=True):
            if request_id not in plan.joining:
                assert self.row_of[request_id] == row, "a row moved while its request ran"

    def _prefill(self, request_id: str, start: int, count: int) -> None:
        pages = self.scheduler.pages_of(request_id)
        tokens = self.scheduler.tokens_of(request_id)
        for position in range(start, start + count):
            self._write(pages, position, tokens[position])

    def _write(self, pages: tuple[int, ...], position: int, token: int) -> int:
        before = self.slots.get(self._slot(pages, position - 1), -1) if position else 0
        state = state_after(before, token)
        self.slots[self._slot(pages, position)] = state
        return state

    def _slot(self, pages: tuple[int, ...], position: int) -> int:
        size = self.limits.page_tokens
        return pages[position // size] * size + position % size

    def _join(self, request_id: str) -> None:
        row = self.scheduler.row_of(request_id)
        assert row is not None
        assert row not in self.rows
        tokens = self.scheduler.tokens_of(request_id)
        answer = self.answers[request_id]
        left = self.scheduler.budget_of(request_id) - len(answer.tokens)
        self.rows[row] = Row(
            request_id, self.scheduler.pages_of(request_id), tokens[-1], len(tokens) - 1, left
        )
        self.row_of[request_id] = row

    def _leave(self, request_id: str) -> None:
        row = self.row_of.pop(request_id, None)
        if row is not None:
            del self.rows[row]

    def _launch(self, plan: Plan) -> tuple[dict[str, list[int]], dict[str, FinishReason]]:
        tokens: dict[str, list[int]] = {request_id: [] for request_id in plan.decode}
        finished = {}
        steps = plan.steps
        if self.early is not None and steps > 1 and self.early.random() < 0.3:
            steps = self.early.randint(1, steps)
        for request_id in plan.decode:
            row = self.rows[self.row_of[request_id]]
            for _ in range(1 if request_id in plan.single else steps):
                if row.left == 0:
                    break
                row.token = self._write(row.pages, row.position, row.token) % VOCABULARY
                row.position += 1
                row.left -= 1
                tokens[request_id].append(row.token)
                if row.token == END:
                    row.left = 0
                    finished[request_id] = FinishReason.STOP
        return tokens, finished

    def _drain(self) -> None:
        if not self.results:
            return
        _, tokens, finished = self.results.popleft()
        for request_id, new in tokens.items():
            answer = self.answers[request_id]
            if answer.reason is None:
                answer.tokens += new
        for request_id, reason in self.scheduler.advance(tokens, finished).items():
            self._leave(request_id)
            self._end(request_id, reason)

    def _end(self, request_id: str, reason: FinishReason) -> None:
        answer = self.answers[request_id]
        answer.reason = reason
        answer.over_at = self.plans


def engine(
    limits: Limits,
    pages: int,
    *,
    prefix: bool = True,
    depth: int = 1,
    early: Random | None = None,
) -> PretendEngine:
    pool = PagePool(pages + 1)
    scheduler = Scheduler(limits, pool, PrefixIndex(pool) if prefix else None)
    return PretendEngine(scheduler, limits, depth=depth, early=early)
