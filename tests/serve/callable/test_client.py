"""Who is blamed for the end of a callable's process, with a process that is made up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.errors import ResourceError
from ostinato.serve.callable import Array, messages
from ostinato.serve.callable.arrays import TensorSpec
from ostinato.serve.callable.client import CallableClient
from ostinato.serve.callable.service import Description, Numbers

SPECS = {"x": TensorSpec("UINT8", (-1, 1))}
HELLO = messages.Hello(Description("1", SPECS, SPECS, (1,), 8, 99))
IDLE = Numbers(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {}, 0.0, 0.0, 1)
KILLER = 9
Life = tuple[int, list[int] | None]
"""Of one process: waits for so many requests, then runs these and dies, or (None) answers all."""


class Processes:
    """Processes on one socket, one after the other."""

    def __init__(self, *lives: Life) -> None:
        self.seen: list[list[tuple[int, bool]]] = []
        self._lives = list(lives)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(messages.frame([HELLO]))
        frames, asked = messages.to_model(), list[messages.Infer]()
        count, runs = self._lives.pop(0)
        while data := await reader.read(1 << 16):
            for message in (each for frame in frames.feed(data) for each in frame):
                if isinstance(message, messages.Count):
                    writer.write(messages.frame([messages.Counted(message.key, IDLE)]))
                elif isinstance(message, messages.Infer):
                    asked.append(message)
            if len(asked) < count:
                continue
            self.seen.append([(one.inputs["x"].data[0], one.alone) for one in asked])
            if runs is not None:
                keys = [one.key for one in asked if one.inputs["x"].data[0] in runs]
                writer.write(messages.frame([messages.Began(keys)]))
                break
            for one in asked:
                writer.write(messages.frame([messages.Done(one.key, one.inputs)]))
            asked.clear()
        writer.close()


async def ask(client: CallableClient, value: int) -> int:
    found = await client.infer({"x": Array("UINT8", (1, 1), bytes([value]))})
    return found["x"].data[0]


def told(tmp_path: Path, processes: Processes, *asked: int) -> list[object]:
    async def run() -> list[object]:
        path = str(tmp_path / "model.sock")
        server = await asyncio.start_unix_server(processes.talk, path)
        client = CallableClient(path)
        await client.wait_ready()
        found = await asyncio.gather(
            *(ask(client, value) for value in asked), return_exceptions=True
        )
        await client.close()
        server.close()
        return list(found)

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_who_ran_at_a_death_runs_alone_behind_all_others_and_only_the_second_death_is_blamed(
    tmp_path: Path,
) -> None:
    processes = Processes((4, [1, KILLER]), (4, [KILLER]), (3, None))
    found = told(tmp_path, processes, 1, KILLER, 3, 4)
    assert [found[0], *found[2:]] == [1, 3, 4]
    assert isinstance(found[1], ResourceError)
    assert "ended twice while it ran this request, the second time alone" in str(found[1])
    first, second, third = processes.seen
    assert first == [(1, False), (KILLER, False), (3, False), (4, False)]
    assert second == [(3, False), (4, False), (1, True), (KILLER, True)]
    assert third == [(3, False), (4, False), (1, True)]


def test_who_only_waited_is_never_blamed_but_told_after_many_deaths(tmp_path: Path) -> None:
    processes = Processes(*[(1, [])] * 8, (0, None))
    (found,) = told(tmp_path, processes, 5)
    assert "ended 8 times before it answered this request" in str(found)
    assert {alone for seen in processes.seen for _, alone in seen} == {False}


@pytest.mark.parametrize("deaths", [1, 7])
def test_who_only_waited_is_answered_once_a_process_lives(tmp_path: Path, deaths: int) -> None:
    processes = Processes(*[(1, [])] * deaths, (1, None))
    assert told(tmp_path, processes, 5) == [5]


def test_a_process_is_mute_only_while_it_keeps_others_waiting_and_not_as_soon_as_it_comes() -> None:
    async def run() -> None:
        client = CallableClient("/nowhere")
        there: Any = SimpleNamespace(write=lambda data: None)

        async def hear(message: messages.ToFront) -> None:
            reader = asyncio.StreamReader()
            reader.feed_data(messages.frame([message]))
            reader.feed_eof()
            await client._listen(reader, there)

        client._heard_at = monotonic() - 1000.0  # of the process before
        assert client.mute_s == 0.0, "there is none"
        await hear(HELLO)
        assert client.mute_s < 500.0
        client._heard_at = monotonic() - 1000.0
        assert client.mute_s >= 1000.0, "whoever comes would wait"
        lone = asyncio.create_task(ask(client, 1))
        await asyncio.sleep(0)
        assert client.mute_s >= 1000.0, "one that has not begun is no reason for silence"
        await hear(messages.Began(list(client._open)))
        client._heard_at = monotonic() - 1000.0
        assert client.mute_s == 0.0, "one that runs and is waited for harms nobody"
        assert client.trouble(6.0) is None, "what is not to be ended is fit"
        other = asyncio.create_task(ask(client, 2))
        await asyncio.sleep(0)
        assert client.mute_s >= 1000.0
        assert "not been heard of for" in (client.trouble(6.0) or "")
        (key, _) = client._open
        await hear(messages.Done(key, {"x": Array("UINT8", (1, 1), b"\1")}))
        assert await lone == 1
        assert client.mute_s < 500.0, "an answer is a word too"
        await client.close()
        with pytest.raises(ResourceError):
            await other

    asyncio.run(run())
