"""What a process has loaded is set aside before it serves, and not while a graph is captured."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.serve import engine_process, front_process
from ostinato.serve.collector import set_loaded_aside
from ostinato.serve.engine_process import EngineProcess
from ostinato.serve.metrics import Metrics
from ostinato.serve.settings import Settings
from ostinato.serve.setup import Setup


class _Loop:
    """Refers to itself, so that only the collector can end it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_garbage_is_collected_first_and_what_lives_is_looked_at_no_more() -> None:
    kept, lost = _Loop(), weakref.ref(_Loop())
    assert any(one is kept for one in gc.get_objects())
    set_loaded_aside()
    assert lost() is None
    assert not any(one is kept for one in gc.get_objects())


class _Engine:
    fault = None

    def __init__(self) -> None:
        self.told: list[Any] = []

    def between_steps(self, command: Any) -> Future[None]:
        self.told.append(command)
        return Future()  # never done: the pulse does not wait for a step

    def close(self) -> None:
        self.told.append("close")


def test_the_engine_is_told_once_between_two_steps_when_it_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "_PULSE_S", 0.0)
    process = object.__new__(EngineProcess)
    ended, engine = threading.Event(), _Engine()
    warmth = iter([False, False, True, True, True])

    def pulse() -> Any:
        is_warm = next(warmth, None)
        if is_warm is None:
            ended.set()
        elif not is_warm:
            assert not engine.told
        return SimpleNamespace(is_warm=bool(is_warm))

    vars(process).update(
        engine=engine,
        desk=SimpleNamespace(pulse=pulse),
        _heartbeat=tmp_path / "heartbeat",
        _ended=ended,
        _fronts=[],
        _lock=threading.Lock(),
    )
    assert process.serve(tmp_path / "engine.sock") == 0
    assert engine.told == [set_loaded_aside, "close"]


def test_a_front_end_does_so_before_it_takes_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Server:
        def __init__(self, config: object) -> None:
            self.should_exit = False

        async def serve(self, sockets: list[socket.socket]) -> None:
            happened.append("serve")
            sockets[0].close()

    async def opened(setup: Setup) -> Any:
        async def loaded() -> None:
            await asyncio.sleep(60)

        async def close() -> None:
            happened.append("close")

        services = SimpleNamespace(metrics=Metrics())
        return SimpleNamespace(services=services, routes=[], loaded=loaded, close=close)

    monkeypatch.setattr(front_process, "_Server", Server)
    monkeypatch.setattr(front_process.features, "open_front", opened)
    monkeypatch.setattr(front_process, "build", lambda *_: None)
    monkeypatch.setattr(front_process, "watch_parent", lambda _: None)
    monkeypatch.setattr(front_process, "set_loaded_aside", lambda: happened.append("aside"))
    listen = socket.socket().detach()  # whoever serves closes it
    asyncio.run(front_process.serve(Setup(Settings(), "run", "front-0", listen)))
    assert happened == ["aside", "serve", "close"]
