"""^C at every line of a call: the caller hears of it, and the engine goes on as if not asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from llm.interrupting import interrupted
from llm.small_engine import OPTIONS, PAGE_BYTES, engine, greedy, ids
from ostinato.llm.engine import Engine
from ostinato.llm.offline import LLM
from ostinato.llm.request import SamplingParams

LONG_S = 120.0
PROMPTS = [ids(count, seed) for seed, count in enumerate((20, 5, 33))]
WORDS = greedy(3, ignore_eos=True)


def check_as_before(made: Engine) -> None:
    """Check that the engine answers, and that nothing is left once it has."""
    assert len(made.ask(PROMPTS[1], WORDS).result(LONG_S).token_ids) == 3
    rested, until_s = threading.Event(), monotonic() + LONG_S
    while not made._core.is_idle:  # whoever was let in and is held by nobody runs to the end
        assert monotonic() < until_s, made._core.books.living()
        rested.wait(0.001)
    made.check_integrity()
    counts = made.counts().scheduler
    assert (counts.waiting, counts.waiting_tokens, counts.running) == (0, 0, 0)
    assert counts.available_pages == made._core.books.capacity
    assert made.counts().failures == {}


@pytest.mark.parametrize("n", [1, 3])
def test_a_submission_that_is_interrupted_anywhere_leaves_nothing_behind(
    tiny: Path, n: int
) -> None:
    params = SamplingParams(max_tokens=3, n=n, ignore_eos=True)
    with engine(tiny) as made:
        at = 1
        while interrupted(lambda: made.ask(PROMPTS[0], params, request_id="same"), at):
            check_as_before(made)
            at += 1
        assert at > 100
        check_as_before(made)


@pytest.fixture
def llm(tiny: Path) -> Iterator[LLM]:
    made = LLM(tiny, **{**OPTIONS, "max_waiting": 2, "kv_memory": 30 * PAGE_BYTES})
    yield made
    made.close()


def test_a_script_that_is_interrupted_anywhere_can_generate_again(llm: LLM) -> None:
    ideal = [output.token_ids for output in llm.generate(PROMPTS, WORDS)]
    at = 1
    while interrupted(lambda: llm.generate(PROMPTS, WORDS), at):
        assert [output.token_ids for output in llm.generate(PROMPTS, WORDS)] == ideal
        check_as_before(llm.engine)
        at += 13
    assert at > 500


def test_a_progress_that_interrupts_ends_what_was_asked(llm: LLM) -> None:
    def interrupt(done: int, _: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    long = SamplingParams(max_tokens=150, temperature=0, ignore_eos=True)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS, [WORDS, WORDS, long], progress=interrupt)
    check_as_before(llm.engine)
    assert llm.engine.counts().ends["abort"] == 1
