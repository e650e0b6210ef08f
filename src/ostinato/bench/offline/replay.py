"""Sends requests to an engine when their time has come, and gathers what each one saw."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostinato.bench.offline.results import Answered
from ostinato.llm import SamplingParams
from ostinato.llm.refusals import QueueFull

if TYPE_CHECKING:
    from ostinato.bench.offline.arrivals import Arrival
    from ostinato.bench.offline.prefixes import Shared
    from ostinato.llm import Engine
    from ostinato.llm.answers import Output
    from ostinato.llm.stream import Stream


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a window.

    Attributes:
        seconds: From the first request to the last token.
        tokens: New tokens.
    """

    seconds: float
    tokens: int
    answered: tuple[Answered, ...]


def replay_arrivals(engine: Engine, arrivals: Sequence[Arrival], speed: float | None) -> Replayed:
    """Send every request at its time, `speed` times faster; None: all at once.

    A request that finds the queue full is sent again a little later; the wait counts as its own.
    """
    chance = random.Random(0)
    top = engine.vocabulary - 1
    prompts = [[chance.randint(3, top) for _ in range(one.context)] for one in arrivals]
    asked: list[tuple[float, Stream]] = []
    began = time.monotonic()
    for one, prompt in zip(arrivals, prompts, strict=True):
        due_s = 0.0 if speed is None else one.at_s / speed
        time.sleep(max(0.0, began + due_s - time.monotonic()))
        asked.append((due_s, _ask_until_taken(engine, prompt, one.generated)))
    outputs = [(due_s, stream, stream.result()) for due_s, stream in asked]
    seconds = time.monotonic() - began
    answered = tuple(_answered(output) for _, _, output in outputs)
    return Replayed(seconds, sum(one.tokens for one in answered), answered)


def _ask_until_taken(engine: Engine, prompt: list[int], generated: int) -> Stream:
    params = SamplingParams(max_tokens=generated, temperature=0, ignore_eos=True)
    while True:
        try:
            return engine.ask(prompt, params)
        except QueueFull:
            time.sleep(0.002)


def _answered(output: Output) -> Answered:
    if output.error is not None:
        raise output.error
    metrics = output.metrics
    assert metrics.ttft_s is not None
    return Answered(len(output.token_ids), metrics.ttft_s, metrics.tpot_s)


def replay_shared(engine: Engine, requests: Iterable[Shared], at_once: int) -> float:
    """Send requests in their order, `at_once` of them living; return the seconds for all."""
    began = time.monotonic()
    living: deque[Stream] = deque()
    for request in requests:
        if len(living) == at_once:
            _answered(living.popleft().result())
        prompt = request.tokens(engine.vocabulary)
        living.append(_ask_until_taken(engine, prompt, request.generated))
    while living:
        _answered(living.popleft().result())
    return time.monotonic() - began
