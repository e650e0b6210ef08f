"""Waiters: whoever waits is woken, in whatever order looks and changes fall."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from ostinato.llm.waiters import Waiters

LONG_S = 60.0


class Change:
    """Something to wait for, that comes between a look and its answer."""

    def __init__(self, waiters: Waiters, at_look: int) -> None:
        self.looks = 0
        self._waiters, self._at_look = waiters, at_look

    def __call__(self) -> bool:
        self.looks += 1
        seen = self.looks > self._at_look
        if self.looks == self._at_look:
            other = threading.Thread(target=self._waiters.tell)
            other.start()
            other.join()
        return seen


def in_a_thread(waiters: Waiters, is_there: Callable[[], bool]) -> None:
    waiting = threading.Thread(target=waiters.wait_for, args=(is_there,), daemon=True)
    waiting.start()
    waiting.join(LONG_S)
    assert not waiting.is_alive()


def in_an_event_loop(waiters: Waiters, is_there: Callable[[], bool]) -> None:
    asyncio.run(asyncio.wait_for(waiters.wait_in_loop(is_there), LONG_S))


@pytest.mark.parametrize("wait", [in_a_thread, in_an_event_loop])
@pytest.mark.parametrize("at_look", [1, 2])
def test_a_change_that_overtakes_a_look_is_seen(
    wait: Callable[[Waiters, Callable[[], bool]], None], at_look: int
) -> None:
    waiters = Waiters()
    change = Change(waiters, at_look)
    wait(waiters, change)
    assert change.looks == at_look + 1  # it slept, and did not go round and round


def test_two_who_answer_each_other_are_never_left_asleep() -> None:
    rounds, turns = 3000, [0]
    both = (Waiters(), Waiters())

    def answer(own: int) -> None:
        for _ in range(rounds):
            assert both[own].wait_for(lambda: turns[0] % 2 == own, LONG_S)
            turns[0] += 1
            both[1 - own].tell()

    players = [threading.Thread(target=answer, args=(own,), daemon=True) for own in (0, 1)]
    for player in players:
        player.start()
    for player in players:
        player.join(LONG_S)
    assert turns == [2 * rounds]


def test_tasks_that_answer_a_thread_are_never_left_asleep() -> None:
    rounds, asked, answers = 1000, [0], [0, 0]
    thread, tasks = Waiters(), Waiters()

    def ask() -> None:
        for _ in range(rounds):
            asked[0] += 1
            tasks.tell()
            assert thread.wait_for(lambda: min(answers) == asked[0], LONG_S)

    async def answer(which: int) -> None:
        for _ in range(rounds):
            await tasks.wait_in_loop(lambda: asked[0] > answers[which])
            answers[which] += 1
            thread.tell()

    async def answer_both() -> None:
        await asyncio.wait_for(asyncio.gather(answer(0), answer(1)), LONG_S)

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    asyncio.run(answer_both())
    asker.join(LONG_S)
    assert answers == [rounds, rounds]


@pytest.mark.parametrize("timeout_s", [0.0, 0.01])
def test_who_has_waited_long_enough_leaves_nothing_behind(timeout_s: float) -> None:
    waiters = Waiters()
    assert not waiters.wait_for(lambda: False, timeout_s)
    looks = iter([False, True])
    assert waiters.wait_for(lambda: next(looks), timeout_s)
    assert not waiters._calls


def test_a_task_that_is_cancelled_leaves_nothing_behind() -> None:
    waiters = Waiters()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiters.wait_in_loop(lambda: False), 0.01)

    asyncio.run(give_up())
    assert not waiters._calls


def test_an_event_loop_that_is_closed_keeps_nobody_else_asleep() -> None:
    waiters = Waiters()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(waiters.wait_in_loop(lambda: False))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    woken = threading.Event()
    waiters._calls.append(woken.set)
    assert len(waiters._calls) == 2
    waiters.tell()
    assert woken.is_set()
    assert not waiting.done()
    waiting.get_coro().close()  # type: ignore[union-attr]


def test_who_signs_up_again_at_once_is_told_once() -> None:
    waiters, calls = Waiters(), 0

    def again() -> None:
        nonlocal calls
        calls += 1
        waiters._calls.append(again)

    waiters._calls.append(again)
    waiters.tell()
    assert calls == 1


def test_a_call_that_was_interrupted_is_made_by_the_next_who_tells() -> None:
    waiters, calls = Waiters(), 0

    def interrupted_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt

    waiters._calls.append(interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        waiters.tell()
    waiters.tell()
    assert calls == 2
    assert not waiters._calls


def test_two_who_tell_at_once_wake_somebody_once() -> None:
    waiters = Waiters()
    called = threading.Lock()
    called.acquire()

    def call_for_both() -> None:
        called.release()
        called.release()  # as another thread does that tells of the same change

    waiters._calls.append(call_for_both)
    waiters.tell()
    assert called.acquire(blocking=False)
    assert not waiters._calls
