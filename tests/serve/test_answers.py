"""Blocks that nobody has read are joined: a slow reader gets fewer and larger frames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ostinato.serve.answers import Answers, Refused
from ostinato.serve.services import GenerateRequest, TokenBlock
from ostinato.serve.wire import Problem, Timing

GONE = Problem("OST6020", "gone", "again", "down")


class Holder:
    """Remembers who was forgotten, and whether he had ended."""

    def __init__(self) -> None:
        self.forgotten: list[bool] = []

    def forget(self, answers: Answers, *, is_over: bool) -> None:
        self.forgotten.append(is_over)


def run(test: Callable[[Answers, Holder], Awaitable[None]], n: int = 1) -> None:
    async def call() -> None:
        holder = Holder()
        answers = Answers(holder, 1, GenerateRequest(prompt_ids=[1], options={"n": n}))
        await test(answers, holder)

    asyncio.run(call())


def block(text: str, index: int = 0, finish: str | None = None) -> TokenBlock:
    return TokenBlock(index, text, [ord(letter) for letter in text], finish_reason=finish)


def test_a_reader_in_time_gets_each_block_and_a_late_one_gets_them_as_one() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        answers.put(block("a"))
        assert (await anext(answers)).text == "a"
        answers.put(block("b"))
        answers.put(block("c"))
        answers.put(TokenBlock(0, "d", [100], finish_reason="stop", timing=Timing(1, 2, 3, 4)))
        late = await anext(answers)
        assert (late.text, late.token_ids, late.finish_reason) == ("bcd", [98, 99, 100], "stop")
        assert late.timing == Timing(1, 2, 3, 4)
        with pytest.raises(StopAsyncIteration):
            await anext(answers)
        assert holder.forgotten == [True]

    run(test)


def test_log_probabilities_are_joined_with_their_tokens() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        for value in (-1.0, -2.0):
            answers.put(TokenBlock(0, "a", [97], logprobs=[(value, [(97, value)])]))
        assert (await anext(answers)).logprobs == [(-1.0, [(97, -1.0)]), (-2.0, [(97, -2.0)])]

    run(test)


def test_answers_side_by_side_are_not_mixed_and_end_when_all_have() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        answers.put(block("a", 0))
        answers.put(block("x", 1, "stop"))
        answers.put(block("b", 0))
        assert [(b.index, b.text) for b in (await anext(answers), await anext(answers))] == [
            (0, "ab"),
            (1, "x"),
        ]
        assert not answers.is_over
        answers.put(block("", 0, "length"))
        assert answers.is_over

    run(test, n=2)


def test_a_reader_that_waits_is_woken() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        reading = asyncio.ensure_future(anext(answers))
        await asyncio.sleep(0)
        answers.put(block("a"))
        assert (await reading).text == "a"

    run(test)


def test_an_end_from_here_leaves_readable_what_had_come() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        answers.put(block("a"))
        answers.end(GONE)
        last = await anext(answers)
        assert (last.text, last.finish_reason, last.error) == ("a", "error", GONE)
        answers.put(block("late"))
        with pytest.raises(StopAsyncIteration):
            await anext(answers)
        assert holder.forgotten == [False]

    run(test)


def test_an_end_before_it_was_let_in_refuses_it() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        answers.end(GONE)
        with pytest.raises(Refused) as refused:
            await answers.admitted
        assert refused.value.problem == GONE

    run(test)


def test_cancelling_wakes_the_reader_and_tells_the_engine_once() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        reading = asyncio.ensure_future(anext(answers, None))
        await asyncio.sleep(0)
        answers.cancel()
        answers.cancel()
        assert await reading is None
        assert holder.forgotten == [False]

    run(test)


def test_news_may_overtake_the_word_that_it_was_let_in() -> None:
    async def test(answers: Answers, holder: Holder) -> None:
        answers.put(block("a"))
        await asyncio.wait_for(answers.admitted, 60)

    run(test)
