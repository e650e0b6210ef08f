"""Streams in a closed loop on the real scheduler, in simulated milliseconds: nobody sleeps.

What a plan takes on the device is a table of Llama-3.2-1B on one H200, rounded. All answers are of
the same length, so the streams run in waves: the hardest case for the time to the first token.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from statistics import mean

import pytest

from llm.pretend_engine import PretendEngine
from ostinato.llm.kv.pages import PagePool
from ostinato.llm.limits import Limits
from ostinato.llm.request import FinishReason, Request, SamplingParams
from ostinato.llm.scheduler import Plan, Scheduler

STREAMS, PROMPT, NEW, WAVES = 256, 128, 128, 4
TURN, GAP = 5.0, 0.06  # from the end of an answer to the first request behind it, and to the next


def prefill_ms(tokens: int) -> float:
    return 0.25 + 0.0032 * tokens if tokens else 0.0


def step_ms(rows: int) -> float:
    return 0.7 + 0.005 * rows


class OnTheClock(PretendEngine):
    """Knows what time it is when a launch is over.

    Args:
        host_ms: What the host takes to plan and queue a launch, and for the prompts of one.
    """

    def __init__(self, limits: Limits, *, host_ms: tuple[float, float]) -> None:
        pages = STREAMS * limits.pages_for(PROMPT + NEW)
        super().__init__(Scheduler(limits, PagePool(pages + 1)), limits, depth=2)
        self.now = self.device_free_at = 0.0
        self._host_ms = host_ms
        self._ends: deque[float] = deque()
        self.first_at: dict[str, float] = {}
        self.ended: list[str] = []

    def _launch(self, plan: Plan) -> tuple[dict[str, list[int]], dict[str, FinishReason]]:
        tokens = sum(chunk.count for chunk in plan.prefill)
        begin = max(self.now + self._host_ms[0], self.device_free_at)
        self.now += self._host_ms[0] + (self._host_ms[1] if tokens else 0.0)
        prefilled = max(begin + prefill_ms(tokens), self.now)
        self.device_free_at = prefilled + plan.steps * step_ms(len(plan.decode))
        self._ends.append(self.device_free_at)
        return super()._launch(plan)

    def _drain(self) -> None:
        if self.results:
            self.now = max(self.now, self._ends.popleft())
            for name, new in self.results[0][1].items():
                if new:
                    self.first_at.setdefault(name, self.now)
        super()._drain()

    def _end(self, request_id: str, reason: FinishReason) -> None:
        super()._end(request_id, reason)
        self.ended.append(request_id)


def run_waves(limits: Limits, *, host_ms: tuple[float, float]) -> tuple[list[float], float]:
    """Return what the first tokens of all waves but the first took, and a wave in all."""
    loop = OnTheClock(limits, host_ms=host_ms)
    coming = [(0.0, f"{stream}.0") for stream in range(STREAMS)]
    sent_at: dict[str, float] = {}
    while coming or not loop.scheduler.is_idle:
        if loop.scheduler.is_idle:
            loop.now = max(loop.now, coming[0][0])
        while coming and coming[0][0] <= loop.now:
            at, name = heappop(coming)
            ids = tuple((len(sent_at) + place) % 999 for place in range(PROMPT))
            sent_at[name] = at
            loop.submit(Request(name, ids, SamplingParams(max_tokens=NEW), arrival_s=at / 1e3))
        loop.step()
        for place, name in enumerate(loop.ended):
            stream, turn = map(int, name.split("."))
            if turn + 1 < WAVES:
                heappush(coming, (loop.now + TURN + GAP * place, f"{stream}.{turn + 1}"))
        loop.ended.clear()
    waits = [loop.first_at[name] - at for name, at in sent_at.items() if not name.endswith(".0")]
    return sorted(waits), loop.now / WAVES


@pytest.mark.parametrize("tokens", [2048, 8192])
def test_first_tokens_come_as_the_prompts_of_a_wave_are_done(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm.pretend_engine.END", -1)  # no answer ends before its length
    limits = Limits(max_batch=STREAMS, max_model_len=1024, prefill_tokens=tokens, newcomer_steps=1)
    waits, wave = run_waves(limits, host_ms=(1.0, 4.0 * tokens / 8192))
    prompts = STREAMS * (PROMPT - 1) / tokens * prefill_ms(tokens)
    steps = NEW * step_ms(STREAMS)
    # Were nothing else done meanwhile, the first tokens of four plans would come after 5/8 of it.
    assert mean(waits) < 0.7 * prompts
    assert wave < 1.05 * (prompts + steps + TURN)
