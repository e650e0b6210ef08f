"""Engines over a tiny random llama, and what its answers should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from llm.models.tiny_folders import VOCABULARY
from ostinato.llm.config import EngineConfig
from ostinato.llm.core import Core
from ostinato.llm.engine import Engine
from ostinato.llm.kv.store import bytes_per_page
from ostinato.llm.loading import load
from ostinato.llm.offline import LLM
from ostinato.llm.reply import Event, Reply
from ostinato.llm.request import FinishReason, Request, SamplingParams

# Of the tiny llama: 2 layers, 2 key-value heads of 16.
PAGE_BYTES = bytes_per_page(2, 16, 2, 16, torch.float32)
END = 2
OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "max_batch": 8,
    "max_model_len": 256,
    "steps_per_launch": 4,
    "kv_memory": 200 * PAGE_BYTES,
    "most_logprobs": 3,
    # Recording is the business of other tests, and takes most of the time of these.
    "backend": "eager",
}


def config(folder: Path, **options: Any) -> EngineConfig:
    pages = options.pop("pages", None)
    if pages is not None:  # that requests can use
        options["kv_memory"] = (pages + 1) * PAGE_BYTES
    return EngineConfig.read({"model": folder, **OPTIONS, **options})


def ids(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()


def greedy(tokens: int, **options: Any) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, temperature=0, **options)


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    error: Exception | None = None
    events: int = 0


class Steps:
    """A core without a thread: requests come in and steps are made when a test says so."""

    def __init__(
        self, folder: Path, *, depth: int = 1, begins_in_prefill: bool | None = None, **options: Any
    ) -> None:
        wanted = config(folder, **options)
        self.core = Core(load(wanted), wanted, depth=depth, begins_in_prefill=begins_in_prefill)
        self.answers: dict[str, Answer] = {}
        self._count = 0

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        seed: int = 0,
        stop_ids: Sequence[int] = (END,),
        **request: Any,
    ) -> str:
        name = f"r{self._count}"
        self._count += 1
        self.core.submit(
            [Reply(Request(name, tuple(prompt), params, **request), seed, tuple(stop_ids))]
        )
        self.answers[name] = Answer()
        return name

    def step(self) -> list[Event]:
        events = self.core.step()
        self.take(events)
        return events

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            answer = self.answers[event.request_id]
            assert answer.finish is None, "news after the end"
            answer.tokens += event.token_ids
            answer.finish, answer.error = event.finish, event.error
            answer.events += 1

    def cancel(self, name: str) -> bool:
        was_living = self.core.cancel(name)
        self.take(self.core.take_news())
        return was_living

    def run(self, most: int = 5000) -> None:
        """Step until nothing lives, and check that nothing is left behind."""
        for _ in range(most):
            if not self.core.has_work:
                break
            self.step()
        self.check_clean()

    def check_clean(self) -> None:
        assert self.core.is_idle
        self.core.books.check_integrity()
        assert self.core.resident.rows == ()
        counts = self.core.books.counts()
        assert (counts.waiting, counts.waiting_tokens, counts.running) == (0, 0, 0)
        assert counts.available_pages == self.core.books.capacity
        assert all(answer.finish is not None for answer in self.answers.values())


class Alone:
    """An engine that never has two requests, and records nothing: what it says is the truth."""

    def __init__(self, folder: Path) -> None:
        self._steps = Steps(
            folder, steps_per_launch=1, prefix_cache=False, max_batch=1, backend="eager"
        )

    def __call__(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        seed: int = 0,
        stop_ids: Sequence[int] = (END,),
    ) -> list[int]:
        name = self._steps.submit(prompt, params, seed=seed, stop_ids=stop_ids)
        self._steps.run()
        return self._steps.answers[name].tokens


def begun(llm: LLM) -> tuple[int, int]:
    """How many prompt tokens were ever admitted, and how many requests have ended."""
    counts = llm.engine.counts()
    return counts.scheduler.prompt_tokens, sum(counts.ends.values())


@contextmanager
def engine(folder: Path, **options: Any) -> Iterator[Engine]:
    """An engine that must be left clean."""
    with Engine(config(folder, **options)) as made:
        yield made
        if made.fault is None:
            assert made.wait_drained(60)
            made.check_integrity()
            counts = made.counts().scheduler
            assert (counts.waiting, counts.running, counts.under_way) == (0, 0, 0)
            assert counts.available_pages == made._core.books.capacity
            assert made._core.resident.rows == ()
