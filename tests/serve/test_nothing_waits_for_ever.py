"""Where a part of the service fails in a way that nobody foresaw, whoever waits for it is told."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ostinato.errors import ResourceError
from ostinato.llm import Engine, EngineConfig
from ostinato.serve import engine_process, logs
from ostinato.serve.answers import Answers
from ostinato.serve.callable import Fault, fault_of, keeper, messages, process, served
from ostinato.serve.callable.arrays import TensorSpec, from_numbers
from ostinato.serve.callable.client import CallableClient
from ostinato.serve.callable.service import Description
from ostinato.serve.desk import Desk
from ostinato.serve.engine_socket import FrontEnd
from ostinato.serve.link import OpenLink
from ostinato.serve.peers import answer_in_thread
from ostinato.serve.services import GenerateRequest
from ostinato.serve.socket_link import SocketLink
from ostinato.serve.versions import Version, Versions
from ostinato.serve.wire import (
    Block,
    Cancel,
    Hello,
    Pulse,
    Reader,
    ToFront,
    Told,
    frame,
)
from serve.running import ENGINE

HELLO = Hello("m", "folder", "v1", 1, 100, 64, 5)
PULSE = Pulse(None, 0.0, False, True, 0, 0, 0)


class Texts:
    """Makes the text of an answer, or cannot."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def push(self, ids: list[int]) -> tuple[str, bool]:
        if self._fails:
            raise OverflowError("no such token")
        return "a" * len(ids), False

    def finish(self) -> str:
        return ""


class Link(OpenLink):
    """Keeps what it is to send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def _send(self, messages: Any) -> None:
        self.sent += messages


@pytest.mark.parametrize("tokens", [1, 100])  # at once, and in a thread
def test_tokens_without_a_text_end_their_answer_and_nobody_else_s(tokens: int) -> None:
    async def run() -> None:
        link = Link()
        both = []
        for key in (1, 2):
            answers = Answers(link, key, GenerateRequest(prompt_ids=[1]))
            texts: Any = [Texts(fails=key == 1)]
            answers.texts, link._open[key] = texts, answers
            both.append(answers)
        ids = list(range(tokens))
        link.take([Block(1, 0, ids), Block(2, 0, ids, finish="stop")])
        async with asyncio.timeout(120):
            broken, whole = [[block async for block in answers] for answers in both]
        assert broken[-1].error is not None
        assert broken[-1].error.code == "OST6025"
        assert [block.text for block in whole] == ["a" * tokens]
        assert link.sent == [Cancel([1])]  # its row is given back
        assert not link.open_requests
        link.close()

    asyncio.run(run())


class Greeter:
    """An engine's desk that only says hello."""

    def __init__(self) -> None:
        self.left = threading.Event()

    def hello(self) -> Hello:
        return HELLO

    def pulse(self) -> Pulse:
        return PULSE

    def leave(self, client: Any) -> None:
        self.left.set()


def front_end() -> tuple[FrontEnd, Greeter, socket.socket, threading.Event]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.settimeout(120)
    desk, lost = Greeter(), threading.Event()
    fake: Any = desk
    front = FrontEnd("f0", ours, fake, lambda front: lost.set())
    front.start()
    return front, desk, theirs, lost


def heard(theirs: socket.socket) -> list[Any]:
    """All that is said until the connection ends."""
    reader, found = Reader(ToFront), []
    while data := theirs.recv(65536):
        for said in reader.feed(data):
            found += said
    return found


def test_a_front_end_that_cannot_be_told_something_is_left_at_once() -> None:
    front, desk, theirs, lost = front_end()
    with theirs:
        front.send([Told(1, object())])  # no message can carry it
        assert set(map(type, heard(theirs))) <= {Hello, Pulse}
        assert lost.wait(120)
        assert desk.left.is_set()


def test_a_front_end_that_no_longer_reads_keeps_no_thread_when_it_goes() -> None:
    front, _, theirs, lost = front_end()
    with theirs:
        front.send([Told(1, "x" * (1 << 22))])  # more than a socket holds: the writer waits
        seen = 0
        while seen < 1 << 16:  # it is in the midst of it
            seen += len(theirs.recv(1 << 14))
        writers = [one for one in threading.enumerate() if one.name == "ostinato-f0"]
        theirs.sendall(b"\xff" * 8)  # no language of ours: the reader ends it
        assert lost.wait(120)
        for one in writers:
            one.join(120)
            assert not one.is_alive()


def test_a_tokenizer_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    tries: list[str] = []

    async def load(folder: str) -> Any:
        tries.append(folder)
        if len(tries) == 1:
            raise OSError("the disk is away for a moment")

    async def run() -> None:
        path = tmp_path / "engine.sock"

        writers = []

        def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            writer.write(frame([HELLO]))

        server = await asyncio.start_unix_server(greet, str(path))
        link = SocketLink(path, restart_s=600, load_tokenizer=load)
        link._retry_s = 0.0
        try:
            async with asyncio.timeout(120):
                while not link.is_up:
                    await asyncio.sleep(0.005)
        finally:
            link.close()
            server.close()
            for writer in writers:
                writer.close()
                await writer.wait_closed()

    asyncio.run(run())
    assert tries == ["folder", "folder"]


def test_metrics_that_cannot_be_told_once_are_told_the_next_time(tmp_path: Path) -> None:
    told = iter([b"", b"numbers"])

    def snapshot() -> bytes:
        one = next(told)
        if not one:
            raise ValueError("in the midst of a change")
        return one

    path = tmp_path / "front.metrics"
    answer_in_thread(path, snapshot)
    for expected in (b"", b"numbers"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(120)
            asking.connect(str(path))
            assert asking.recv(100) == expected


def test_an_engine_s_process_that_cannot_go_on_ends_with_all_its_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Process:
        def __init__(self, *given: object) -> None: ...

        def serve(self, path: Path) -> int:
            raise ValueError("not foreseen")

    statuses: list[int] = []
    for name in ("read_setup", "watch_parent", "tell_stacks"):
        monkeypatch.setattr(engine_process, name, lambda *given: _Setup())
    monkeypatch.setattr(logs, "set_up", lambda *given: None)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    monkeypatch.setattr(engine_process, "EngineProcess", Process)
    monkeypatch.setattr(os, "_exit", statuses.append)
    engine_process.main()
    assert statuses == [engine_process.EXIT_FAULT]


class _Setup:
    settings, name, engine_socket = None, "engine", Path("/nowhere")


def test_a_callable_for_which_no_process_can_be_had_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def none_left(*words: object) -> int:
        raise BlockingIOError("no more processes")

    async def run() -> None:
        monkeypatch.setattr(keeper, "_run", none_left)
        with pytest.raises(ResourceError, match="no more processes") as caught:
            async with asyncio.timeout(120), served("shop:factory"):
                pass
        assert fault_of(caught.value) is Fault.BROKEN

    asyncio.run(run())


def test_a_request_that_cannot_be_sent_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Writer:
        def write(self, data: bytes) -> None:
            raise OverflowError("no frame is so long")

    async def run() -> None:
        client = CallableClient("/nowhere")
        specs = {"x": TensorSpec("FP32", (-1, 4))}
        client._description = Description("1", specs, specs, (1,), 4, 1)
        fake: Any = Writer()
        client._writer = fake
        with pytest.raises(OverflowError):
            await client.infer({"x": from_numbers("x", "FP32", (1, 4), [1, 1, 1, 1])})
        assert not client._open
        client._writer = None
        await client.close()

    asyncio.run(run())


def test_an_engine_introduces_itself_whatever_its_queue_may_hold(tiny_chat: Path) -> None:
    endless = dict.fromkeys(("max_waiting", "max_waiting_tokens"), 2**63 - 1)  # the most taken
    with Engine(EngineConfig.read({"model": tiny_chat, **ENGINE, **endless})) as engine:
        desk = Desk(engine, Versions(Version("initial", None, 1), tokenizer_folder=None))
        assert frame([desk.hello(), desk.pulse()])


def test_a_callable_s_process_that_cannot_answer_leaves_who_waits(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Service:
        description = Description("1", {}, {}, (1,), 4, 1)

        async def numbers(self) -> None:
            raise KeyError("not foreseen")

    class Writer:
        is_closed = False

        def is_closing(self) -> bool:
            return self.is_closed

        def write(self, data: bytes) -> None: ...

        def close(self) -> None:
            self.is_closed = True

    async def run() -> None:
        service, reader, writer = Service(), asyncio.StreamReader(), Writer()
        fakes: tuple[Any, Any, Any] = (service, reader, writer)
        reader.feed_data(messages.frame([messages.Count(1)]))
        serving = asyncio.create_task(process._FrontEnd(*fakes).serve())
        async with asyncio.timeout(120):
            while not writer.is_closed:
                await asyncio.sleep(0)
        reader.feed_eof()
        await serving

    asyncio.run(run())
    assert "not foreseen" in capfd.readouterr().err


def test_a_front_end_for_which_there_is_no_thread_is_hung_up_on_and_the_next_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[FrontEnd] = []

    def start(front: FrontEnd) -> None:
        started.append(front)
        if len(started) == 1:
            raise RuntimeError("can't start new thread")

    class Listener:
        def __init__(self) -> None:
            self.pairs = [socket.socketpair() for _ in range(2)]
            self._left = [ours for ours, _ in self.pairs]

        def accept(self) -> tuple[socket.socket, str]:
            if not self._left:
                raise OSError("closed")
            return self._left.pop(0), ""

    monkeypatch.setattr(FrontEnd, "start", start)
    parent: Any = object.__new__(engine_process.EngineProcess)
    parent.desk, parent._fronts, parent._lock = Greeter(), [], threading.Lock()
    listener: Any = Listener()
    parent._accept(listener)
    assert parent._fronts == started[1:]
    (_, first), (ours, second) = listener.pairs
    first.settimeout(120)
    assert first.recv(1) == b""
    for one in (first, second, ours):
        one.close()
