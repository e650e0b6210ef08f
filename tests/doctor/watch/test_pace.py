"""How seldom a watch looks: so that looks keep to their share, whatever they and steps take."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from ostinato.doctor import pace
from ostinato.doctor.collect import gates, notebook
from ostinato.doctor.collect.notebook import Here
from ostinato.doctor.pace import ALL_OF_THE_FIRST, SHARE, Pace

US = 1000


class Clock:
    """CPU time of a thread whose steps take `step_us`, and 100 us more where they are looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step_us: float, look_us: float) -> None:
        self.step_us, self.look_us = step_us, look_us
        self.now_ns = 0
        monkeypatch.setattr(notebook, "thread_time_ns", lambda: self.now_ns)

    def steps(self, here: Here, pace: Pace, lot: Random, count: int) -> list[int]:
        """Make steps, and return the numbers of those that were looked at."""
        looked = []
        for number in range(count):
            here.begin_step(pace, lot)
            if here.looks:
                looked.append(number)
                here.spent_ns += round(self.look_us * US)
                self.now_ns += round(self.look_us * US)
            self.now_ns += round(self.step_us * US)
            here.end_step()
        return looked


@pytest.fixture(autouse=True)
def _nothing_stays_passed_over() -> object:
    yield
    gates.be_inside(False)
    gates.begin()


def test_the_first_steps_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, step_us=200, look_us=100)
    the_pace = Pace()
    looked = clock.steps(Here(), the_pace, Random(0), ALL_OF_THE_FIRST)
    assert looked == list(range(ALL_OF_THE_FIRST))
    assert the_pace.looks == ALL_OF_THE_FIRST


@pytest.mark.parametrize(
    ("step_us", "look_us", "one_of"),
    [
        (2000, 100, 20),  # a small step of many operations
        (200, 10, 20),
        (50, 100, 550),  # hardly any step is looked at; the first ones took their look's time too
        (100_000, 100, 1),  # a long one bears a look each time
    ],
)
def test_later_ones_take_their_share_of_the_time_at_most(
    monkeypatch: pytest.MonkeyPatch, step_us: float, look_us: float, one_of: int
) -> None:
    clock, here, the_pace, lot = Clock(monkeypatch, step_us, look_us), Here(), Pace(), Random(0)
    clock.steps(here, the_pace, lot, ALL_OF_THE_FIRST)
    clock.steps(here, the_pace, lot, 40 * one_of)  # it learns what steps take without looks
    count = 400 * one_of
    looked = clock.steps(here, the_pace, lot, count)
    assert the_pace.one_of == pytest.approx(2 * look_us / (SHARE * step_us), rel=0.25, abs=1)
    share = len(looked) * look_us / (count * step_us)
    assert share <= SHARE
    if one_of > 1:
        assert share >= SHARE / 4  # and it does look
        assert len({b - a for a, b in pairwise(looked)}) > 8  # by lot


def test_each_look_stands_for_the_steps_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    here, the_pace, lot = Here(), Pace(), Random(0)
    Clock(monkeypatch, 2000, 100).steps(here, the_pace, lot, 300)
    stood_for, step = 0, 0
    here = Here()
    for step in range(1, 2000):
        here.begin_step(the_pace, lot)
        if here.looks:
            stood_for += here.weight
            assert stood_for == step
    assert step - 100 < stood_for <= step


def test_a_look_that_was_interrupted_says_little_of_the_next() -> None:
    steady = Pace()
    for number in range(64):
        steady.learn(100e3 if number % 16 else 20_000e3, 2000e3)
    assert 20 <= steady.one_of <= 30


def test_what_became_slower_is_noticed() -> None:
    learning = Pace()
    for _ in range(8):
        learning.learn(10e3, 10_000e3)
    for _ in range(64):
        learning.learn(1000e3, 10_000e3)
    assert learning.one_of == pytest.approx(40, abs=1)


def test_short_lived_threads_are_not_looked_at_from_their_first_step_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, the_pace, lot = Clock(monkeypatch, 2000, 100), Pace(), Random(0)
    first = [len(clock.steps(Here(), the_pace, lot, 2)) for _ in range(pace._MOST_AT_FIRST // 2)]
    assert sum(first) == pace._MOST_AT_FIRST
    assert the_pace.looks == pace._MOST_AT_FIRST
    stood_for = looked = 0
    for _ in range(20_000):
        here = Here()
        here.begin_step(the_pace, lot)
        looked += here.looks
        stood_for += here.weight if here.looks else 0
        here.end_step()
    assert looked < 20_000 / 10
    assert stood_for == pytest.approx(20_000, rel=0.15)  # as if all had been
