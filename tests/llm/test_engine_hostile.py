"""Programs that mean no good: readers that fail, callers that vanish, closing amid everything.

After each of them nothing is left: no row, no page, no entry in the books, and nobody waits.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from llm.small_engine import Alone, config, engine, greedy, ids
from llm.test_engine_misuse import in_a_fork
from ostinato.llm.engine import Engine
from ostinato.llm.faults import EngineDown
from ostinato.llm.reply import Event
from ostinato.llm.request import FinishReason, Request
from ostinato.llm.stream import Stream

LONG_S = 120.0
PROMPTS = [ids(count, seed) for seed, count in enumerate((20, 5, 33, 2))]
FREE: dict[str, Any] = {"ignore_eos": True}


@pytest.fixture(scope="module")
def alone(tiny: Path) -> Alone:
    return Alone(tiny)


def words(alone: Alone, at: int, tokens: int = 6) -> tuple[int, ...]:
    return tuple(alone(PROMPTS[at], greedy(tokens), stop_ids=()))


@contextmanager
def held(made: Engine) -> Iterator[None]:
    """An engine whose thread stands still meanwhile, between two steps."""
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait(LONG_S)

    made.between_steps(stand)
    assert stands.wait(LONG_S)
    yield
    go_on.set()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("at", [1, 3])
def test_a_reader_that_fails_ends_its_own_request_alone(
    tiny: Path, alone: Alone, error: BaseException, at: int
) -> None:
    told: list[Event] = []

    def fail(event: Event) -> None:
        told.append(event)
        if len(told) == at:
            raise error

    with engine(tiny, steps_per_launch=1) as made:
        others = [made.ask(prompt, greedy(6, **FREE)) for prompt in PROMPTS]
        made.send(Request("bad", tuple(PROMPTS[0]), greedy(100, **FREE)), [fail])
        answers = [stream.result(LONG_S).token_ids for stream in others]
        assert answers == [words(alone, at) for at in range(len(PROMPTS))]
        assert made.wait_drained(LONG_S)
        assert len(told) == at
        assert made.counts().ends == {FinishReason.LENGTH: 4, FinishReason.ABORT: 1}
        assert made.health().is_healthy


def test_a_command_that_nobody_waits_for_any_more_is_left_out(tiny: Path, alone: Alone) -> None:
    done: list[str] = []
    with engine(tiny) as made:
        with held(made):
            given_up = made.between_steps(lambda: done.append("a"))
            other = made.between_steps(lambda: done.append("b"))
            assert given_up.cancel()
        other.result(LONG_S)
        assert done == ["b"]
        assert made.ask(PROMPTS[1], greedy(6, **FREE)).result(LONG_S).token_ids == words(alone, 1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), OSError("no")], ids=repr)
def test_a_command_that_fails_is_told_to_who_gave_it(tiny: Path, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with engine(tiny) as made:
        with pytest.raises(type(error)):
            made.between_steps(fail).result(LONG_S)
        assert len(made.ask(PROMPTS[1], greedy(2, **FREE)).result(LONG_S).token_ids) == 2


@contextmanager
def recording_ahead(made: Engine) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """An engine that is amid a recording made ahead, until it is told how that goes."""
    core: Any = made._core
    amid, go_on = threading.Event(), threading.Event()
    outcome: list[Callable[[], bool]] = []

    def idle() -> bool:
        amid.set()
        assert go_on.wait(LONG_S)
        return outcome[0]()

    def go(how: Callable[[], bool]) -> None:
        outcome.append(how)
        go_on.set()

    core.warming.is_done = False
    core.idle = idle
    made.between_steps(lambda: None).result(LONG_S)
    assert amid.wait(LONG_S)
    yield go


def lose() -> bool:
    raise torch.AcceleratorError("CUDA error: unspecified launch failure")


@pytest.mark.parametrize("how", ["fault", "closed"])
def test_who_waits_for_recordings_is_told_when_none_will_be_made(tiny: Path, how: str) -> None:
    made = Engine(config(tiny))
    warm: list[bool] = []
    with recording_ahead(made) as go:
        waiting = threading.Thread(target=lambda: warm.append(made.wait_warm(LONG_S)), daemon=True)
        waiting.start()
        while not made._loop._await_rest._calls:
            pass
        made._loop._is_closing = how == "closed"
        go(lose if how == "fault" else lambda: True)
        waiting.join(LONG_S)
    assert warm == [False]
    made.close()


def frames_kept(error: BaseException) -> int:
    count, trace = 0, error.__traceback__
    while trace is not None:
        count, trace = count + 1, trace.tb_next
    return count


def test_a_refusal_that_is_told_again_and_again_keeps_no_frames(tiny: Path) -> None:
    made = Engine(config(tiny))
    made.close()
    kept = []
    for _ in range(5):
        with pytest.raises(EngineDown, match="closed") as caught:
            made.ask(PROMPTS[0])
        kept.append(frames_kept(caught.value))
    assert len(set(kept)) == 1


def test_who_submits_while_the_engine_closes_is_answered_or_refused(tiny: Path) -> None:
    for turn in range(3):
        made = Engine(config(tiny, pages=20))
        outcomes: list[str] = []
        begun = threading.Barrier(5, timeout=LONG_S)

        def ask(
            seed: int,
            made: Engine = made,
            begun: threading.Barrier = begun,
            outcomes: list[str] = outcomes,
        ) -> None:
            begun.wait()
            for turn in range(200):
                try:
                    stream = made.ask(PROMPTS[(seed + turn) % 4], greedy(20, **FREE))
                except EngineDown:
                    outcomes.append("refused")
                    return
                outcomes.append(stream.result(LONG_S).finish_reason.value)

        threads = [threading.Thread(target=ask, args=(seed,), daemon=True) for seed in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        if turn:
            made.ask(PROMPTS[1], greedy(turn * 20, **FREE)).result(LONG_S)
        made.close()
        for thread in threads:
            thread.join(LONG_S)
        assert not any(thread.is_alive() for thread in threads)
        assert outcomes.count("refused") == 4
        assert set(outcomes) <= {"refused", "length", "abort"}
        made.check_integrity()
        counts = made.counts().scheduler
        assert (counts.waiting, counts.running, counts.under_way) == (0, 0, 0)
        assert counts.available_pages == made._core.books.capacity
        assert made._core.resident.rows == ()


def test_streams_that_nobody_holds_run_to_their_end(tiny: Path) -> None:
    with engine(tiny) as made:
        for _ in range(3):
            for prompt in PROMPTS:
                stream = made.ask(prompt, greedy(6, n=2, **FREE))
                next(iter(stream))
                del stream
            gc.collect()
        assert made.wait_drained(LONG_S)
        assert made.counts().ends == {FinishReason.LENGTH: 24}


def test_an_engine_whose_last_holder_is_its_own_thread_ends(tiny: Path) -> None:
    ended: list[threading.Thread] = []

    def hold() -> None:
        made = Engine(config(tiny, steps_per_launch=1))
        ended.append(made._loop._thread)
        held = [made]

        def let_go(_: Event) -> None:
            held.clear()

        made.send(Request("r", tuple(PROMPTS[0]), greedy(50, **FREE)), [let_go])
        while held:  # the frame of this function is no holder either, once it is over
            threading.Event().wait(0.001)
            if made is not None:
                del made
                made = None  # type: ignore[assignment]

    hold()
    gc.collect()
    ended[0].join(LONG_S)
    assert not ended[0].is_alive()


def test_a_reader_that_looks_at_the_clock_again_and_again_loses_no_token(
    tiny: Path, alone: Alone
) -> None:
    async def read(made: Engine) -> tuple[int, ...]:
        stream = made.ask(PROMPTS[2], greedy(40, **FREE))
        tokens: list[int] = []
        while True:
            try:
                delta = await asyncio.wait_for(anext(stream), 0.0005)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                return tuple(tokens)
            tokens += delta.token_ids

    with engine(tiny, steps_per_launch=1) as made:
        read_so = asyncio.run(asyncio.wait_for(read(made), LONG_S))
    assert read_so == words(alone, 2, 40)


def test_an_async_reader_that_is_closed_leaves_the_rest_to_others(tiny: Path, alone: Alone) -> None:
    async def work(made: Engine) -> tuple[int, ...]:
        stream = made.ask(PROMPTS[2], greedy(20, **FREE))

        async def pieces() -> Any:
            async for delta in stream:
                yield delta

        reading = pieces()
        first = await anext(reading)
        await reading.aclose()
        rest = [token async for delta in stream for token in delta.token_ids]
        return (*first.token_ids, *rest)

    with engine(tiny, steps_per_launch=1) as made:
        assert asyncio.run(asyncio.wait_for(work(made), LONG_S)) == words(alone, 2, 20)


@pytest.mark.parametrize("wait", ["result", "for", "wait", "async for"])
def test_a_forked_process_does_not_wait_for_an_answer_that_cannot_come(
    tiny: Path, wait: str
) -> None:
    async def read(stream: Stream) -> None:
        async for _ in stream:
            pass

    waits: dict[str, Callable[[Stream], object]] = {
        "result": Stream.result,
        "for": list,
        "wait": lambda stream: asyncio.run(stream.wait()),
        "async for": lambda stream: asyncio.run(read(stream)),
    }
    with engine(tiny) as made:
        with held(made):
            stream = made.ask(PROMPTS[0], greedy(3, **FREE))

            def use() -> None:
                with pytest.raises(EngineDown, match="another process") as caught:
                    waits[wait](stream)
                assert caught.value.code == "OST5145"

            assert in_a_fork(use) == 0
        assert len(stream.result(LONG_S).token_ids) == 3
