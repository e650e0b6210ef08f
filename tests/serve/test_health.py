"""Three questions of health, each with its own answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ostinato.serve.health import progress, ready
from ostinato.serve.wire import Pulse

WELL = Pulse(
    why=None, idle_s=0.0, is_living=True, is_warm=True, waiting=0, waiting_tokens=0, running=1
)


def but(**change: Any) -> Pulse:
    return msgspec.structs.replace(WELL, **change)


def test_an_engine_that_steps_is_well() -> None:
    assert progress(WELL, 0.1, 20).is_good


@pytest.mark.parametrize(
    ("pulse", "age_s", "words"),
    [
        (None, 0.0, "not there"),
        (but(why="the device failed"), 0.0, "the device failed"),
        (WELL, 25.0, "not been heard of for 25 s"),
        (but(idle_s=15.0), 8.0, "no step was made for 23 s"),
        (but(idle_s=21.0), 0.0, "no step was made for 21 s"),
    ],
)
def test_an_engine_that_hangs_or_is_gone_is_not(
    pulse: Pulse | None, age_s: float, words: str
) -> None:
    verdict = progress(pulse, age_s, 20)
    assert not verdict.is_good
    assert words in str(verdict.why)
    assert not ready(verdict, pulse, is_draining=False).is_good


def test_an_engine_without_requests_may_rest_as_long_as_it_likes() -> None:
    assert progress(but(is_living=False, idle_s=3600.0), 0.2, 20).is_good


def test_it_is_ready_only_when_warm_and_not_while_it_stops() -> None:
    well = progress(WELL, 0.0, 20)
    assert ready(well, WELL, is_draining=False).is_good
    assert "warming" in str(ready(well, but(is_warm=False), is_draining=False).why)
    assert "stopping" in str(ready(well, WELL, is_draining=True).why)


def test_verdicts_are_values() -> None:
    assert replace(progress(WELL, 0.0, 20), why="x").why == "x"
