"""An engine whose process does nothing at all any more is ended, and another one started."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from ostinato.serve import supervisor
from ostinato.serve.heartbeat import Heartbeat, beat
from ostinato.serve.settings import Settings
from ostinato.serve.supervisor import Supervisor, _Child
from serve.processes import served
from serve.running import wait_for


def test_one_that_has_not_begun_is_not_missed(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path / "none")
    assert [heartbeat.silent_s(now) for now in (0.0, 1000.0)] == [0.0, 0.0]


def test_silence_is_counted_from_the_last_new_beat_whatever_the_system_s_clock_says(
    tmp_path: Path,
) -> None:
    path = tmp_path / "engine.heartbeat"
    beat(path)
    heartbeat = Heartbeat(path)
    assert heartbeat.silent_s(100.0) == 0.0
    assert heartbeat.silent_s(107.0) == 7.0
    os.utime(path, (1, 1))  # the system's clock went back by decades
    assert heartbeat.silent_s(108.0) == 0.0
    assert heartbeat.silent_s(109.5) == 1.5


class _Mute:
    """A process that runs and beats no more."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def poll(self) -> None:
        return None

    def send_signal(self, number: int) -> None:
        self.told.append(number)

    def kill(self) -> None:
        self.told.append(signal.SIGKILL)


def test_it_is_asked_for_its_stacks_once_and_then_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(supervisor, "monotonic", lambda: now[0])
    watcher = Supervisor(Settings(progress_s=5.0), lambda where: None)
    path = tmp_path / "engine.heartbeat"
    beat(path)
    mute: Any = _Mute()
    engine = _Child("engine", "nothing", process=mute, heartbeat=Heartbeat(path))
    seen = {}
    for now[0] in (0.0, 5.9, 6.1, 6.5, 7.2):
        assert watcher._look_after(engine, str(tmp_path)) is None
        seen[now[0]] = list(mute.told)
    assert seen[5.9] == []
    assert seen[6.1] == seen[6.5] == [signal.SIGUSR1]
    assert seen[7.2] == [signal.SIGUSR1, signal.SIGKILL]


@pytest.mark.slow
def test_an_engine_that_stands_still_is_replaced_and_the_next_request_is_answered(
    tiny_chat: Path,
) -> None:
    with served(tiny_chat, "--progress-s", "5") as service:
        stopped = service.engine
        wait_for(lambda: service.http.get("/healthz").status_code == 200)
        stopped.send_signal(signal.SIGSTOP)
        wait_for(lambda: not stopped.is_running() or stopped.status() == psutil.STATUS_ZOMBIE, 120)
        wait_for(service.is_ready, 240)
        assert service.engine.pid != stopped.pid
        body = {"prompt": "hello", "max_tokens": 2}
        assert service.http.post("/v1/completions", json=body).status_code == 200
        assert service.stop() == 0
    said = [str(line["message"]) for line in service.log]
    assert any("has not been heard of for" in each and "--progress-s" in each for each in said)
