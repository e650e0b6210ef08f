"""A stream without an engine: what comes is read once, and nobody is woken or left for nothing."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any

import pytest

from llm.interrupting import interrupted
from ostinato.llm.answers import Delta
from ostinato.llm.reply import Event, Reply
from ostinato.llm.request import FinishReason, Request
from ostinato.llm.resident_launch import TokenLogprobs
from ostinato.llm.stream import Channel, Stream
from ostinato.llm.text import AnswerText
from ostinato.llm.waiters import Waiters

REPLY = Reply(Request("r", (1, 2, 3)), 0)
LONG_S = 60.0


def stream_of(*channels: Channel) -> Stream:
    return Stream("r", (1, 2, 3), channels, lambda: None)


def end(*tokens: int) -> Event:
    return Event(REPLY, tokens, finish=FinishReason.LENGTH)


def test_readers_of_every_kind_get_each_token_once_while_it_comes() -> None:
    tokens = 4000
    channels = [Channel(0, None), Channel(1, None)]
    stream, got = stream_of(*channels), []

    def write() -> None:
        for token in range(tokens):
            for channel in channels:
                channel.put(Event(REPLY, (token,)))
        for channel in channels:
            channel.put(end(tokens))

    def read() -> None:
        got.extend(stream)

    async def read_too() -> None:
        async def one() -> None:
            got.extend([delta async for delta in stream])

        await asyncio.wait_for(asyncio.gather(one(), one(), stream.wait()), LONG_S)

    workers = [threading.Thread(target=each, daemon=True) for each in (read, read, write)]
    for worker in workers:
        worker.start()
    asyncio.run(read_too())
    for worker in workers:
        worker.join(LONG_S)
    assert not any(worker.is_alive() for worker in workers)
    for index, choice in enumerate(stream.result(0).choices):
        assert choice.token_ids == tuple(range(tokens + 1))
        read_ones = [t for delta in got if delta.index == index for t in delta.token_ids]
        assert sorted(read_ones) == list(range(tokens + 1))
    assert stream.new_tokens == 2 * (tokens + 1)


def test_readers_that_sleep_are_woken_by_each_event() -> None:
    channel = Channel(0, None)
    stream = stream_of(channel)
    got: SimpleQueue[tuple[int, ...]] = SimpleQueue()

    def read() -> None:
        for delta in stream:
            got.put(delta.token_ids)

    async def read_too() -> None:
        async for delta in stream:
            got.put(delta.token_ids)

    for begin in (read, lambda: asyncio.run(read_too())):
        threading.Thread(target=begin, daemon=True).start()
    for token in range(20):
        until_s = monotonic() + LONG_S
        while len(stream._await_news._calls) < 2 and monotonic() < until_s:
            sleep(0.001)
        channel.put(Event(REPLY, (token,)))
        assert got.get(timeout=LONG_S) == (token,)
    channel.put(end())
    assert got.get(timeout=LONG_S) == ()


def test_who_waits_for_the_whole_answer_is_left_alone_until_then() -> None:
    channels = [Channel(0, None), Channel(1, None)]
    stream = stream_of(*channels)
    looks = 0

    class Counting(Waiters):
        def tell(self) -> None:
            nonlocal looks
            looks += 1
            super().tell()

    for channel in channels:
        channel.await_end = Counting()
    for token in range(50):
        channels[0].put(Event(REPLY, (token,)))
    assert looks == 0
    channels[0].put(end(50))
    channels[1].put(end())
    assert looks == 2
    assert len(stream.result(0).token_ids) == 51


class Watched(list[Any]):
    """What was read; looks at its channel from elsewhere as soon as the last piece is in it."""

    def __init__(self, channel: Channel, what: str) -> None:
        super().__init__()
        self.seen: list[bool] = []
        self.looker = threading.Thread(target=lambda: self.seen.append(getattr(channel, what)))

    def append(self, delta: Delta) -> None:
        super().append(delta)
        self.looker.start()
        self.looker.join(0.2)


@pytest.mark.parametrize(("what", "seen"), [("is_read", False), ("has_news", True)])
def test_a_reader_does_not_take_an_answer_for_read_that_is_being_collected(
    what: str, seen: bool
) -> None:
    channel = Channel(0, None)
    stream = stream_of(channel)
    watched = Watched(channel, what)
    channel._pieces = watched
    channel.put(end(5))
    assert stream.result(0).token_ids == (5,)
    watched.looker.join(LONG_S)
    assert watched.seen == [seen]
    assert [delta.token_ids for delta in stream] == [(5,)]


def test_an_answer_that_was_collected_can_be_collected_again_and_read_once() -> None:
    channel = Channel(0, None)
    stream = stream_of(channel)
    channel.put(Event(REPLY, (1,), (TokenLogprobs(-0.5, ()),)))
    assert next(iter(stream)).token_ids == (1,)
    channel.put(Event(REPLY, (2, 3), (TokenLogprobs(-1.5, ()), TokenLogprobs(-2.5, ()))))
    channel.put(end())
    for _ in range(2):
        output = stream.result(0)
        assert output.token_ids == (1, 2, 3)
        assert output.logprobs is not None
        assert [one.chosen for one in output.logprobs] == [-0.5, -1.5, -2.5]
    (last,) = stream
    assert (last.token_ids, last.finish_reason) == ((2, 3), "length")


def test_an_answer_is_not_whole_before_its_last_piece_has_come() -> None:
    channel = Channel(0, None)
    stream = stream_of(channel)
    channel.put(Event(REPLY, (1,)))
    with pytest.raises(TimeoutError, match="not finished after 0"):
        stream.result(0)
    channel.put(end(2))
    assert stream.result(0).token_ids == (1, 2)


def spoken(text: str, *, stops: tuple[str, ...] = ()) -> tuple[Channel, list[Event]]:
    """Return a channel whose tokens are bytes, and events of three that cut letters in two."""
    ids = text.encode()
    events = [Event(REPLY, tuple(ids[at : at + 3])) for at in range(0, len(ids), 3)]
    return Channel(0, AnswerText(lambda ids: bytes(ids).decode(errors="replace"), stops)), events


@pytest.mark.parametrize("stops", [(), ("äh",)])
def test_an_answer_is_whole_wherever_its_readers_are_interrupted(stops: tuple[str, ...]) -> None:
    text, at, was_interrupted = "äöü, so ☂, äs wär's ☂☂ getan", 0, True
    while was_interrupted:
        at += 1
        channel, events = spoken(text, stops=stops)
        stream = stream_of(channel)
        begin, *some, middle, last = events
        channel.put(begin)
        channel.take()
        for event in some:
            channel.put(event)
        was_interrupted = interrupted(channel.take, at)
        channel.put(middle)
        was_interrupted |= interrupted(channel.take, at)
        channel.put(end(*last.token_ids))
        was_interrupted |= interrupted(stream.result, at)
        for _ in range(2):
            assert stream.result(0).text == text
            assert stream.result(0).token_ids == tuple(text.encode())
    assert at > 40


def test_a_reader_interrupted_before_it_has_a_piece_gets_it_the_next_time() -> None:
    channel, events = spoken("süß und säuerlich")
    stream_of(channel)
    for event in events:
        channel.put(event)
    pushed = AnswerText.push

    def interrupt(text: AnswerText, ids: Any) -> tuple[str, int]:
        pushed(text, ids)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnswerText, "push", interrupt)
        with pytest.raises(KeyboardInterrupt):
            channel.take()
    assert channel.has_news
    delta = channel.take()
    assert delta is not None
    assert delta.text == "süß und säuerlich"
    assert channel.take() is None
