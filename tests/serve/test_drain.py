"""A stop: nobody new, a bounded time for those who are there, and a word for who is left."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from ostinato.serve.drain import Drain
from ostinato.serve.wire import Problem


def test_without_anybody_a_stop_takes_no_time() -> None:
    began = monotonic()
    assert asyncio.run(Drain().run(30))
    assert monotonic() - began < 29


def test_a_stop_waits_for_who_is_being_answered() -> None:
    async def stop() -> tuple[bool, bool]:
        drain = Drain()
        drain.enter()
        stopping = asyncio.create_task(drain.run(30))
        await asyncio.sleep(0.05)
        waited = not stopping.done() and drain.is_draining
        drain.leave()
        return waited, await stopping

    assert asyncio.run(stop()) == (True, True)


def test_who_is_left_at_the_bound_is_told_why_and_the_stop_goes_on() -> None:
    async def stop() -> tuple[list[Problem], bool]:
        drain = Drain()
        told: list[Problem] = []
        drain.enter()

        def cut(problem: Problem) -> None:
            told.append(problem)
            drain.leave()

        drain.watch("stream", cut)
        return told, await drain.run(0.2)

    told, is_clean = asyncio.run(stop())
    assert not is_clean
    assert [problem.code for problem in told] == ["OST6022"]
    assert "0.2 s" in told[0].message


def test_who_does_not_listen_does_not_hold_up_the_stop() -> None:
    async def stop() -> float:
        drain = Drain()
        drain.enter()
        began = monotonic()
        await drain.run(0.2)
        return monotonic() - began

    assert asyncio.run(asyncio.wait_for(stop(), 60)) > 0.15


@pytest.mark.parametrize("bound_s", [0.0, 2.0, 30.0])
def test_answers_have_the_whole_bound_and_the_last_words_a_second_of_their_own(
    bound_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait_empty(self: Drain, seconds: float) -> bool:
        waits.append(seconds)
        return False

    monkeypatch.setattr(Drain, "_wait_empty", wait_empty)

    async def stop() -> bool:
        return await Drain().run(bound_s)

    assert not asyncio.run(stop())
    assert waits == [bound_s, 1.0]
