"""A machine that has no process to spare for a moment does not end the service."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ostinato.serve import supervisor
from ostinato.serve.settings import Settings
from ostinato.serve.supervisor import EXIT_HOPELESS, Supervisor, _Child


def none_left(*words: Any, **options: Any) -> Any:
    raise BlockingIOError(11, "no more processes")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which goes on when a test says so."""
    now = [0.0]
    monkeypatch.setattr(supervisor, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> Supervisor:
    monkeypatch.setattr(subprocess, "Popen", none_left)
    return Supervisor(Settings(), lambda where: None)


def test_a_front_end_is_tried_again_ever_more_seldom(
    watcher: Supervisor, clock: list[float], tmp_path: Path
) -> None:
    with socket.socket() as listener:
        front = _Child("front-0", "nothing", listener)
        for wait_s in (0.0, 0.5, 1.0, 2.0):
            assert watcher._look_after(front, str(tmp_path)) is None
            assert front.process is None
            assert front.due == clock[0] + wait_s
            failures = front.restarts.failures
            if wait_s:  # not before its time
                clock[0] = front.due - 0.1
                assert watcher._look_after(front, str(tmp_path)) is None
                assert front.restarts.failures == failures
            clock[0] = front.due


def test_an_engine_that_never_started_is_given_up(
    watcher: Supervisor, clock: list[float], tmp_path: Path
) -> None:
    engine = _Child("engine", "nothing")
    statuses = []
    for _ in range(3):
        statuses.append(watcher._look_after(engine, str(tmp_path)))
        clock[0] = engine.due
    assert statuses == [None, None, EXIT_HOPELESS]


def test_one_that_was_ready_before_is_waited_for(
    watcher: Supervisor, clock: list[float], tmp_path: Path
) -> None:
    engine = _Child("engine", "nothing")
    engine.restarts = engine.restarts.ended(100.0, was_ready=True)
    for _ in range(10):
        assert watcher._look_after(engine, str(tmp_path)) is None
        clock[0] = engine.due
