"""The load client, against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import time

import pytest

from bench.serve import scripted_server
from bench.serve.scripted_server import HEAD, Script, event, scripted
from ostinato.bench.serve.client import Client, Share
from ostinato.bench.serve.planning import Planned
from ostinato.bench.serve.seen import CANCELLED, SHED, Seen


def share(port: int, streams: list[list[Planned]], **changed: object) -> Share:
    values: dict[str, object] = {"begin_s": time.monotonic() + 0.02, "timeout_s": 60.0}
    body: dict[str, object] = {"model": "scripted", "stream": True}
    return Share(
        "127.0.0.1",
        port,
        "/v1/completions",
        body,
        streams,
        **(values | changed),  # type: ignore[arg-type]
    )


def send_one(script: Script, planned: Planned | None = None, **changed: object) -> Seen:
    async def run() -> Seen:
        async with scripted(script) as server:
            one = planned or Planned([11, 12], 8)
            [seen] = await Client(share(server.port, [[one]], **changed)).run()
            return seen

    return asyncio.run(run())


async def good(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
    writer.write(HEAD)
    await asyncio.sleep(0.03)
    scripted_server.text(writer, "one")
    await asyncio.sleep(0.02)
    scripted_server.text(writer, " two three")
    scripted_server.end(writer, 3)


def test_a_whole_answer_is_timed_to_its_first_and_last_text() -> None:
    seen = send_one(good)
    assert (seen.error, seen.tokens, seen.status) == ("", 3, 200)
    assert seen.ttft_s is not None
    assert 0.03 <= seen.ttft_s < 5
    assert len(seen.gaps_s) == 1
    assert 0.015 < seen.gaps_s[0] < 5
    assert seen.tpot_s == pytest.approx(seen.gaps_s[0] / 2)


def test_a_stream_asks_again_at_once_on_its_own_connection() -> None:
    async def run() -> None:
        async with scripted(good) as server:
            streams = [[Planned([n], 8) for n in range(11, 14)] for _ in range(2)]
            seen = await Client(share(server.port, streams, first_stream=1, stride=4)).run()
            assert [one.error for one in seen] == [""] * 6
            assert sorted({one.stream for one in seen}) == [1, 5]
            assert server.connections == 2
            assert sorted(body["prompt"][0] for body in server.requests) == [11, 11, 12, 12, 13, 13]  # type: ignore[index]
            assert all(body["max_tokens"] == 8 for body in server.requests)

    asyncio.run(run())


def test_an_open_loop_sends_in_time_whether_answers_came_or_not() -> None:
    async def slow(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        await asyncio.sleep(0.5)
        await good(writer, body)

    async def run() -> None:
        async with scripted(slow) as server:
            streams = [[Planned([11], 8, at_s=0.02 * n)] for n in range(6)]
            seen = await Client(share(server.port, streams)).run()
            # One after the other they would take 3 s; the bound leaves room for a busy machine.
            assert all(0.02 * n <= one.sent_s < 0.02 * n + 0.45 for n, one in enumerate(seen))
            assert all(one.late_s == one.sent_s - 0.02 * n for n, one in enumerate(seen))
            assert server.connections == 6

    asyncio.run(run())


def test_a_refusal_is_shed_and_says_when_to_come_back() -> None:
    async def full(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        scripted_server.send(writer, b"{}", "429 Too Many Requests", "Retry-After: 2\r\n")

    seen = send_one(full)
    assert (seen.error, seen.status, seen.retry_after_s, seen.tokens) == (SHED, 429, 2.0, 0)


def test_another_status_is_an_error_by_its_code() -> None:
    async def wrong(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        scripted_server.send(writer, b'{"error":{"code":"OST6004","message":"no"}}', "400 Bad")

    assert send_one(wrong).error == "status 400: OST6004"


def test_an_error_in_the_stream_is_told_by_its_kind() -> None:
    async def failing(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        writer.write(HEAD)
        scripted_server.text(writer, "one")
        event(writer, {"error": {"message": "m", "type": "server_error", "code": None}})

    assert send_one(failing).error == "error in the stream: server_error"


def test_a_stream_without_its_end_is_cut_short() -> None:
    async def short(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        writer.write(HEAD)
        scripted_server.text(writer, "one")
        writer.write(b"0\r\n\r\n")

    assert send_one(short).error == "cut short"


def test_a_connection_that_is_lost_is_an_error() -> None:
    async def lost(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        writer.write(HEAD)
        scripted_server.text(writer, "one")
        writer.close()

    seen = send_one(lost)
    assert (seen.error, seen.tokens) == ("connection lost", 0)


def test_a_server_that_is_not_there_is_an_error() -> None:
    async def run() -> None:
        [seen] = await Client(share(1, [[Planned([11], 8, at_s=0.0)]])).run()
        assert seen.error == "no connection: ConnectionRefusedError"

    asyncio.run(run())


def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        await asyncio.sleep(0.2)

    assert send_one(silent, timeout_s=0.05).error == "timeout"


def test_a_client_that_goes_away_closes_its_connection() -> None:
    async def endless(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        writer.write(HEAD)
        for _ in range(500):
            scripted_server.text(writer, "more")
            await writer.drain()
            await asyncio.sleep(0.002)

    async def run() -> None:
        async with scripted(endless) as server:
            one = Planned([11], 8, cancel_after=3)
            [seen] = await Client(share(server.port, [[one]])).run()
            assert (seen.error, len(seen.gaps_s)) == (CANCELLED, 2)
            async with asyncio.timeout(2):
                while not server.gone:
                    await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_chat_begins_with_its_first_text_not_with_who_speaks() -> None:
    async def chat(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        writer.write(HEAD)
        event(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": None})
        await asyncio.sleep(0.05)
        event(writer, {"choices": [{"delta": {"content": "Hi"}}], "usage": None})
        scripted_server.end(writer, 1)

    seen = send_one(chat)
    assert seen.error == ""
    assert seen.ttft_s is not None
    assert seen.ttft_s >= 0.045
    assert (seen.gaps_s, seen.tpot_s) == ([], None)
