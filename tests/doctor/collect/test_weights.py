"""A look stands for the time since the one before, so a line that keeps the GIL gets all of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, cast

import pytest

from ostinato.doctor.collect.sampler import Sampler, _Thread, _use


def sorts() -> Iterator[FrameType]:
    yield sys._getframe()


def models() -> Iterator[FrameType]:
    yield sys._getframe()


SORTS, MODELS = sorts(), models()
SORT, MODEL = next(SORTS), next(MODELS)


def a_thread() -> _Thread:
    return _Thread(name="MainThread", times=cast(Any, None), samples=4)


def test_a_look_that_came_late_weighs_what_it_waited() -> None:
    thread = a_thread()
    for frame, us in ((SORT, 90_000), (MODEL, 10_000), (SORT, 80_000), (MODEL, 20_000)):
        Sampler._weigh(thread, frame, us, was_busy=True, hidden=False, inside=True)
    busy = _use(thread).busy
    assert [(line.place.function, line.share) for line in busy] == [
        ("sorts", 0.85),
        ("models", 0.15),
    ]


def test_time_between_steps_is_told_whether_it_ran_or_waited() -> None:
    thread = a_thread()
    Sampler._weigh(thread, MODEL, 10_000, was_busy=True, hidden=False, inside=True)
    Sampler._weigh(thread, SORT, 30_000, was_busy=False, hidden=False, inside=False)
    use = _use(thread)
    assert [(line.place.function, line.share) for line in use.outside] == [("sorts", 0.75)]
    assert [(line.place.function, line.share) for line in use.busy] == [("models", 1.0)]


def test_what_may_have_been_another_line_is_counted() -> None:
    thread = a_thread()
    Sampler._weigh(thread, MODEL, 30_000, was_busy=True, hidden=True, inside=True)
    Sampler._weigh(thread, MODEL, 10_000, was_busy=True, hidden=False, inside=True)
    Sampler._weigh(thread, MODEL, 60_000, was_busy=False, hidden=True, inside=True)
    assert _use(thread).hidden == pytest.approx(0.75)


def test_a_stack_stands_for_as_many_pauses_as_it_took() -> None:
    sampler = Sampler(cast(Any, None), interval_s=0.02)
    sampler._fold("MainThread", SORT, waits=False, samples=9)
    sampler._fold("MainThread", SORT, waits=True, samples=1)
    (stack,) = sampler.fields()["stacks"]
    assert (stack.samples, stack.waits_for_gil) == (10, 1)
