"""On the way to the first token nothing waits: what is queued before what, and who is told when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from llm.small_engine import Alone, Steps, config, greedy, ids
from ostinato.llm.engine import Engine
from ostinato.llm.request import FinishReason
from ostinato.llm.resident_launch import Launch

PROMPTS = [ids(17, seed) for seed in range(6)]
# Of three plans with two prompts each, all but their last tokens.
OPTIONS: dict[str, Any] = {"prefill_tokens": 32, "prefix_cache": False}
PLAN = ["plan", "prefill", "seat", "launch"]


def noting(notes: list[str], word: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **options: Any) -> Any:
        notes.append(word)
        return call(*args, **options)

    return noted


def watch(core: Any, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note what a core does, in its order."""
    for owner, name, word in (
        (core._books, "plan", "plan"),
        (core._prefiller, "run", "prefill"),
        (core.resident, "join", "seat"),
        (core.resident, "begin", "launch"),
        (core.resident, "launch", "launch"),
    ):
        monkeypatch.setattr(owner, name, noting(notes, word, getattr(owner, name)))
    monkeypatch.setattr(Launch, "wait", noting(notes, "read", Launch.wait))


def in_order(notes: list[str]) -> list[str]:
    return [word for word, _ in groupby(notes)]


@pytest.mark.parametrize("new", [1, 5])
def test_the_next_prompts_are_queued_before_the_first_token_of_those_before_is_read(
    tiny: Path, new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, notes = Alone(tiny), list[str]()
    steps = Steps(tiny, depth=2, begins_in_prefill=True, **OPTIONS)
    watch(steps.core, notes, monkeypatch)
    names = [steps.submit(prompt, greedy(new), stop_ids=()) for prompt in PROMPTS]
    steps.run()
    # The prompts of a plan are queued before anybody of it sits down, and two plans before the
    # first is read: then the device has work while the host reads and plans.
    expected = [*PLAN, *PLAN, "read", *PLAN, "read", "plan"]
    assert in_order(notes)[: len(expected)] == expected
    for name, prompt in zip(names, PROMPTS, strict=True):
        assert steps.answers[name].finish is FinishReason.LENGTH
        assert steps.answers[name].tokens == alone(prompt, greedy(new), stop_ids=())


def test_first_tokens_are_told_before_anything_more_is_planned(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    with Engine(config(tiny, **OPTIONS)) as made:
        core: Any = made._core
        core._depth, core._begins_in_prefill = 2, True
        watch(core, notes, monkeypatch)
        requests = [made.read(p, greedy(1, ignore_eos=True)) for p in PROMPTS]

        def send_all() -> None:  # at once: the engine's thread does nothing else meanwhile
            for request in requests:
                made.send(request, [lambda _: notes.append("told")])

        made.between_steps(send_all).result(60)
        assert made.wait_drained(60)
    told_after_read = ["read", "told"]
    assert in_order(notes) == [
        *PLAN, *PLAN, *told_after_read, *PLAN, *told_after_read, "plan", *told_after_read,
    ]  # fmt: skip
    assert notes.count("told") == len(PROMPTS)
