"""Event loops: one call wakes all who wait in one, and none is called for nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm.small_engine import engine, greedy, ids
from ostinato.llm.event_loops import EventLoops
from ostinato.llm.reply import Event, Reply
from ostinato.llm.request import FinishReason, Request
from ostinato.llm.stream import Channel, Stream

LONG_S = 60.0
REPLY = Reply(Request("r", (1, 2, 3)), 0)


class Counting(asyncio.SelectorEventLoop):
    """Counts the calls from other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> asyncio.Handle:
        self.calls += 1
        return super().call_soon_threadsafe(*args, **options)


def in_another_thread(work: Callable[[], object]) -> None:
    """Do something elsewhere while the event loop of this thread stands still."""
    other = threading.Thread(target=work)
    other.start()
    other.join(LONG_S)
    assert not other.is_alive()


def run(loop: asyncio.AbstractEventLoop, work: Any) -> Any:
    try:
        return loop.run_until_complete(asyncio.wait_for(work, LONG_S))
    finally:
        loop.close()


def streams_of(loops: EventLoops, count: int) -> tuple[list[Channel], list[Stream]]:
    channels = [Channel(0, None) for _ in range(count)]
    return channels, [Stream("r", (1,), [each], lambda: None, loops) for each in channels]


def test_all_who_wait_in_one_event_loop_are_woken_by_one_call() -> None:
    channels, streams = streams_of(EventLoops(), 50)
    loop = Counting()

    async def read(stream: Stream) -> list[int]:
        return [token async for delta in stream for token in delta.token_ids]

    def put(finish: FinishReason | None = None) -> None:
        for channel in channels:
            channel.put(Event(REPLY, (7,), finish=finish))

    async def work() -> list[list[int]]:
        reading = [asyncio.ensure_future(read(stream)) for stream in streams]
        counts = []
        for finish in (None, None, FinishReason.LENGTH):
            await asyncio.sleep(0)  # all of them wait, or go on waiting
            await asyncio.sleep(0)
            before = loop.calls
            in_another_thread(lambda finish=finish: put(finish))  # type: ignore[misc]
            counts.append(loop.calls - before)
        assert counts == [1, 1, 1]
        return await asyncio.gather(*reading)

    assert run(loop, work()) == [[7, 7, 7]] * 50


def test_an_engine_calls_once_into_the_event_loop_of_its_readers(tiny: Path) -> None:
    loop = Counting()

    async def work(made: Any) -> list[int]:
        streams = [made.ask(ids(5, seed), greedy(6, ignore_eos=True)) for seed in range(12)]
        waiting = [asyncio.ensure_future(stream.wait()) for stream in streams]
        await asyncio.sleep(0)
        before = loop.calls
        in_another_thread(lambda: [stream.result(LONG_S) for stream in streams])
        assert loop.calls - before == 1
        return [len(output.token_ids) for output in await asyncio.gather(*waiting)]

    with engine(tiny) as made:
        assert run(loop, work(made)) == [6] * 12


def test_event_loops_in_two_threads_are_each_called_once() -> None:
    channels, streams = streams_of(EventLoops(), 8)
    loops = [Counting(), Counting()]
    ready, put = threading.Barrier(3, timeout=LONG_S), threading.Barrier(3, timeout=LONG_S)
    counts: list[int] = []

    def serve(loop: Counting) -> None:
        async def work() -> None:
            waiting = [asyncio.ensure_future(stream.wait()) for stream in streams]
            await asyncio.sleep(0)
            before = loop.calls
            ready.wait()
            put.wait()
            counts.append(loop.calls - before)
            await asyncio.gather(*waiting)

        run(loop, work())

    threads = [threading.Thread(target=serve, args=(loop,), daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    ready.wait()
    for channel in channels:
        channel.put(Event(REPLY, (7,), finish=FinishReason.LENGTH))
    put.wait()
    for thread in threads:
        thread.join(LONG_S)
    assert counts == [1, 1]


def test_an_event_loop_that_was_closed_with_a_call_under_way_takes_no_memory() -> None:
    loops = EventLoops()
    loop = asyncio.new_event_loop()
    calls = loops.calls_of(loop)
    assert loops.calls_of(loop) is calls
    loop.close()
    for _ in range(3):
        calls.wake(loop.create_future())
    assert not calls._due
    del loop, calls
    gc.collect()
    assert not loops._calls


def test_a_future_that_was_given_up_is_passed_over() -> None:
    loops = EventLoops()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        given_up, waiting = loop.create_future(), loop.create_future()
        for each in (given_up, waiting):
            loops.calls_of(loop).wake(each)
        given_up.cancel()
        await waiting

    run(asyncio.new_event_loop(), work())


def test_a_call_that_was_interrupted_is_made_again() -> None:
    loops = EventLoops()

    class Interrupted(Counting):
        def call_soon_threadsafe(self, *args: Any, **options: Any) -> asyncio.Handle:
            if not self.calls:
                self.calls += 1
                raise KeyboardInterrupt
            return super().call_soon_threadsafe(*args, **options)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        with pytest.raises(KeyboardInterrupt):
            loops.calls_of(loop).wake(first)
        loops.calls_of(loop).wake(second)
        await asyncio.gather(first, second)

    run(Interrupted(), work())
