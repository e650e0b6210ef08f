"""Timing: contenders take turns, each call gets another input, and one that fails is set aside."""

from __future__ import annotations

from time import sleep

import torch
from torch import Tensor

from ostinato.bench.options import Effort
from ostinato.bench.timing import take_turns

CPU = torch.device("cpu")
EFFORT = Effort(rounds=2, drained_calls=3, joined_calls=4)


def pool() -> list[Tensor]:
    return [torch.full((1,), float(number)) for number in range(3)]


def test_everything_is_timed_as_often_as_the_effort_says() -> None:
    times = take_turns({"a": torch.neg, "b": torch.abs}, pool(), CPU, EFFORT)
    for each in times.values():
        counts = [
            spread.count for name in ("host", "alone", "wall") if (spread := each.spread(name))
        ]
        assert counts == [6, 6, 2]


def test_times_are_in_microseconds_per_call() -> None:
    def slow(given: Tensor) -> Tensor:
        sleep(0.002)
        return given

    times = take_turns({"slow": slow}, pool(), CPU, EFFORT)["slow"]
    for name in ("host", "alone", "wall"):
        spread = times.spread(name)
        assert spread is not None
        assert 2000 <= spread.median_us < 20000


def test_turns_alternate_their_order_and_every_call_gets_another_input() -> None:
    seen: list[tuple[str, float]] = []

    def named(name: str) -> object:
        def call(given: Tensor) -> Tensor:
            seen.append((name, given.item()))
            return given

        return call

    take_turns({"a": named("a"), "b": named("b")}, pool(), CPU, EFFORT)  # type: ignore[dict-item]
    timed = seen[10:]  # five warm-ups each
    assert "".join(name for name, _ in timed) == "a" * 7 + "b" * 14 + "a" * 7
    assert [value for _, value in timed[:7]] == [0, 1, 2, 0, 1, 2, 0]


def test_one_that_fails_has_no_times_and_is_not_called_again() -> None:
    calls = 0

    def broken(given: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        raise RuntimeError("no luck")

    times = take_turns({"broken": broken, "good": torch.neg}, pool(), CPU, EFFORT)
    assert calls == 1
    assert times["broken"].error == "RuntimeError: no luck"
    assert times["broken"].spread("host") is None
    assert times["good"].spread("host") is not None


def test_no_round_begins_after_the_seconds_of_a_case_but_two_are_always_run() -> None:
    effort = Effort(rounds=50, drained_calls=1, joined_calls=1, case_s=0.0)
    times = take_turns({"a": torch.neg}, pool(), CPU, effort)["a"]
    assert len(times.wall) == 2
