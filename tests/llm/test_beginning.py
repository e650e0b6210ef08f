"""Many requests at once: the first of them are begun with before the others are let in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from llm.small_engine import engine, greedy, ids
from ostinato.llm import beginning
from ostinato.llm.beginning import Beginning
from ostinato.llm.loop import Loop
from ostinato.llm.waiters import Waiters

LONG_S = 60.0
AT_ONCE = beginning._TOGETHER


@pytest.fixture
def patient() -> Iterator[None]:
    """Let nobody lose patience."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beginning, "_MOST_S", LONG_S)
        yield


def wait_for(is_there: Callable[[], bool]) -> None:
    until_s = monotonic() + LONG_S
    while not is_there():
        assert monotonic() < until_s
        sleep(0.001)


def coming(start: Beginning, count: int) -> threading.Thread:
    def come() -> None:
        for _ in range(count):
            start.give_way()

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    return thread


class Never(Waiters):
    def wait_for(self, is_there: Any, timeout_s: float | None = None) -> bool:
        pytest.fail("somebody waits")


@pytest.mark.usefixtures("patient")
def test_who_comes_behind_many_waits_until_a_step_is_queued() -> None:
    start = Beginning()
    coming(start, AT_ONCE).join(LONG_S)
    late = coming(start, 3)
    wait_for(lambda: bool(start._await_begun._calls))
    assert late.is_alive()
    start.note_step()
    late.join(LONG_S)
    assert not late.is_alive()


def test_nobody_waits_while_steps_follow_each_other() -> None:
    start = Beginning()
    start.note_step()
    start._await_begun = Never()
    for _ in range(3 * AT_ONCE):
        start.give_way()


@pytest.mark.usefixtures("patient")
def test_after_a_rest_it_begins_anew() -> None:
    start = Beginning()
    for _ in range(AT_ONCE):
        start.give_way()
    start.note_step()
    start.note_rest()
    for _ in range(AT_ONCE):
        start.give_way()
    late = coming(start, 1)
    wait_for(lambda: bool(start._await_begun._calls))
    start.note_step()
    late.join(LONG_S)
    assert not late.is_alive()


def test_nobody_waits_where_it_is_not_worth_it() -> None:
    start = Beginning(is_worth=False)
    start._await_begun = Never()
    for _ in range(2):
        for _ in range(2 * AT_ONCE):
            start.give_way()
        start.note_step()
        start.note_rest()


@pytest.mark.parametrize(("most", "is_worth"), [(2047, True), (2048, False)])
def test_it_is_worth_it_where_the_device_takes_longer_over_a_full_plan_than_the_host(
    tiny: Path, most: int, is_worth: bool
) -> None:
    with engine(tiny) as made:
        assert made.limits.prefill_tokens == 2048
        made._core._prefiller.buckets = (16, most)
        assert made._core.has_long_prefills == is_worth
        assert Loop(made._core, made.device)._beginning._is_worth == is_worth


def test_a_step_that_takes_long_is_waited_for_once_and_not_to_its_end() -> None:
    waits = []

    class Impatient(Waiters):
        def wait_for(self, is_there: Any, timeout_s: float | None = None) -> bool:
            waits.append(timeout_s)
            return bool(is_there())

    start = Beginning()
    start._await_begun = Impatient()
    for _ in range(5 * AT_ONCE):
        start.give_way()
    assert waits == [beginning._MOST_S]


@pytest.mark.usefixtures("patient")
def test_the_engine_begins_with_the_first_and_takes_the_others_in_meanwhile(tiny: Path) -> None:
    with engine(tiny) as made:
        core, start = made._core, made._loop._beginning
        step: Any = core._step
        begun_with = []

        def first() -> None:
            wait_for(lambda: bool(start._await_begun._calls))
            begun_with.append(len(core.books.living()))
            core._step = step  # type: ignore[method-assign]
            step()

        def submit() -> None:
            streams = [made.ask(ids(4, at), greedy(2)) for at in range(AT_ONCE + 8)]
            for stream in streams:
                stream.result(LONG_S)

        for _ in range(2):  # and again after a rest
            wait_for(lambda: start._is_due)
            core._step = first  # type: ignore[method-assign]
            caller = threading.Thread(target=submit, daemon=True)
            caller.start()
            caller.join(LONG_S)
            assert not caller.is_alive()
    assert begun_with == [AT_ONCE, AT_ONCE]
