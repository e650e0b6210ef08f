"""A link outlives the engine at its other end: who can be asked for again is, once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ostinato.llm.refusals import PromptTooLong
from ostinato.serve.answers import Answers, Refused
from ostinato.serve.openai.errors import of_problem
from ostinato.serve.services import GenerateRequest
from ostinato.serve.socket_link import SocketLink
from ostinato.serve.wire import (
    Admitted,
    Ask,
    Block,
    Cancel,
    Generate,
    Hello,
    Reader,
    ToEngine,
    Told,
    frame,
)

HELLO = Hello("m", None, "v1", 1, 100, 64, 5)
ASKED = GenerateRequest(prompt_ids=[1, 2], options={"max_tokens": 3})


class Engine:
    """The other end of a link, as a test wants it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = Reader(ToEngine)
        self._got: list[Any] = []
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._server: asyncio.Server | None = None
        self.link: SocketLink | None = None

    async def start(self, *, is_dying: bool = False) -> None:
        """Listen, and introduce itself to whoever connects, unless it is about to die."""
        self._path.unlink(missing_ok=True)
        connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._streams = (reader, writer)
            connected.set_result(None)

        self._server = await asyncio.start_unix_server(take, str(self._path))
        await asyncio.wait_for(connected, 60)
        if not is_dying:
            self.say(HELLO)

    def say(self, *messages: Any) -> None:
        assert self._streams is not None
        self._streams[1].write(frame(messages))

    async def hear(self) -> Any:
        """The next message."""
        assert self._streams is not None
        while not self._got:
            data = await asyncio.wait_for(self._streams[0].read(65536), 60)
            for messages in self._reader.feed(data):
                self._got += messages
        return self._got.pop(0)

    async def die(self) -> None:
        """End, without a word."""
        assert self._streams is not None
        assert self._server is not None
        self._server.close()
        self._path.unlink(missing_ok=True)
        self._streams[1].transport.abort()
        while self.link is not None and self.link._transport is not None:  # until it has seen it
            await asyncio.sleep(0.005)


def linked(
    folder: Path, test: Callable[[SocketLink, Engine], Awaitable[None]], restart_s: float = 600.0
) -> None:
    async def no_tokenizer(folder: str) -> None:
        return None

    async def run() -> None:
        engine = Engine(folder / "engine.sock")
        link = SocketLink(folder / "engine.sock", restart_s=restart_s, load_tokenizer=no_tokenizer)
        with pytest.raises(Refused, match="being started"):
            await link.submit(ASKED)
        engine.link = link
        await engine.start()
        while not link.is_up:
            await asyncio.sleep(0.005)
        try:
            await test(link, engine)
        finally:
            link.close()
            engine.link = None
            await engine.die()

    asyncio.run(run())


async def submit(link: SocketLink, engine: Engine) -> tuple[Answers, Generate]:
    asking = asyncio.ensure_future(link.submit(ASKED))
    asked = await engine.hear()
    engine.say(Admitted(asked.key))
    return await asking, asked


def test_a_request_goes_there_and_its_tokens_come_back(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        answers, asked = await submit(link, engine)
        assert asked.prompt_ids == [1, 2]
        engine.say(Block(asked.key, 0, [7, 8]), Block(asked.key, 0, [2], 1, finish="stop"))
        got = [token async for block in answers for token in block.token_ids]
        assert got == [7, 8, 2]
        assert link.open_requests == 0
        assert link.model.version == "v1"

    linked(tmp_path, test)


def test_who_had_received_nothing_is_asked_for_again_once(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        answers, first = await submit(link, engine)
        await engine.die()
        assert not link.is_up
        await engine.start()
        second = await engine.hear()
        assert second == first
        engine.say(Admitted(second.key), Block(second.key, 0, [7], finish="length"))
        assert [block.token_ids async for block in answers] == [[7]]

    linked(tmp_path, test)


def test_not_a_second_time(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        answers, _ = await submit(link, engine)
        await engine.die()
        await engine.start()
        await engine.hear()
        await engine.die()
        last = await asyncio.wait_for(anext(answers), 60)  # at once, not when patience ends
        assert last.error is not None
        assert last.error.code == "OST6020"
        assert of_problem(last.error).response().headers["retry-after"] == "5"

    linked(tmp_path, test)


def test_an_engine_that_takes_the_connection_and_dies_is_none(tmp_path: Path) -> None:
    """A process that is killed closes its sockets one after the other."""

    async def test(link: SocketLink, engine: Engine) -> None:
        answers, first = await submit(link, engine)
        await engine.die()
        await engine.start(is_dying=True)
        await engine.die()
        await engine.start()
        assert await engine.hear() == first
        assert not answers.is_over

    linked(tmp_path, test)


def test_an_engine_may_speak_before_whoever_connected_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop is free to read as soon as the connection is there."""

    async def test(link: SocketLink, engine: Engine) -> None:
        answers, first = await submit(link, engine)
        connect = asyncio.get_running_loop().create_unix_connection
        greeted = asyncio.Event()
        take = link.take

        def take_and_tell(messages: Any) -> None:
            take(messages)
            greeted.set()

        async def connect_slowly(*args: Any) -> Any:
            made = await connect(*args)
            await greeted.wait()
            return made

        monkeypatch.setattr(link, "take", take_and_tell)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_unix_connection", connect_slowly)
        await engine.die()
        await engine.start()
        assert await engine.hear() == first
        assert link.is_up
        assert not answers.is_over

    linked(tmp_path, test)


def test_who_had_received_something_is_told_at_once(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        answers, asked = await submit(link, engine)
        engine.say(Block(asked.key, 0, [7]))
        assert (await anext(answers)).token_ids == [7]
        await engine.die()
        last = await asyncio.wait_for(anext(answers), 60)
        assert last.finish_reason == "error"
        assert last.error is not None
        assert last.error.kind == "down"

    linked(tmp_path, test)


def test_nobody_waits_for_ever_for_an_engine_that_does_not_come_back(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        answers, _ = await submit(link, engine)
        await engine.die()
        last = await asyncio.wait_for(anext(answers), 60)
        assert last.error is not None
        assert "0.1 s" in last.error.message

    linked(tmp_path, test, restart_s=0.1)


def test_who_was_not_let_in_yet_waits_for_the_next_engine_too(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        asking = asyncio.ensure_future(link.submit(ASKED))
        await engine.hear()
        await engine.die()
        assert not asking.done()
        await engine.start()
        again = await engine.hear()
        engine.say(Admitted(again.key))
        assert not (await asyncio.wait_for(asking, 60)).is_over

    linked(tmp_path, test)


def test_cancelling_is_told_to_the_engine(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        answers, asked = await submit(link, engine)
        answers.cancel()
        assert await engine.hear() == Cancel([asked.key])
        assert link.open_requests == 0

    linked(tmp_path, test)


def test_a_question_has_its_answer_or_an_end(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        asking = asyncio.ensure_future(link.ask("counts"))
        asked = await engine.hear()
        assert asked == Ask(asked.key, "counts", {})
        engine.say(Told(asked.key, {"steps": 1}))
        assert await asking == {"steps": 1}
        another = asyncio.ensure_future(link.ask("counts"))
        await engine.hear()
        await engine.die()
        with pytest.raises(Refused):
            await asyncio.wait_for(another, 60)

    linked(tmp_path, test)


@pytest.mark.parametrize(
    "asked",
    [
        GenerateRequest(prompt_ids=[1, 2**64]),
        GenerateRequest(prompt_ids=[1], priority=-(2**63) - 1),
        GenerateRequest(prompt_ids=[1], options={"schema": {"minimum": 10**30}}),
    ],
)
def test_a_number_that_no_message_can_carry_is_the_request_s_fault(
    asked: GenerateRequest, tmp_path: Path
) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        with pytest.raises(Refused, match="64 bits") as caught:
            await link.submit(asked)
        assert caught.value.problem.kind == "usage"
        assert link.open_requests == 0
        with pytest.raises(Refused, match="64 bits"):
            await link.ask("sleep", seconds=2**64)

    linked(tmp_path, test)


def test_a_prompt_longer_than_the_model_is_not_sent_at_all(tmp_path: Path) -> None:
    async def test(link: SocketLink, engine: Engine) -> None:
        with pytest.raises(PromptTooLong, match="has 65 tokens and at most 63 fit"):
            await asyncio.wait_for(link.submit(GenerateRequest(prompt_ids=[1] * 65)), 60)
        assert link.open_requests == 0

    linked(tmp_path, test)
