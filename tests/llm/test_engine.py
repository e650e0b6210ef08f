"""The engine: many callers, one loop; whatever they do, everybody gets an end and nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from llm.small_engine import Alone, config, engine, greedy, ids
from ostinato.errors import UsageError
from ostinato.llm.answers import Delta
from ostinato.llm.engine import Engine
from ostinato.llm.faults import EngineDown
from ostinato.llm.refusals import PromptTooLong, QueueFull
from ostinato.llm.request import FinishReason, Request, SamplingParams
from ostinato.llm.shapes import ShapeProfile

PROMPTS = [ids(count, seed) for seed, count in enumerate((20, 5, 33, 2, 1, 70))]
FREE: dict[str, Any] = {"ignore_eos": True}


@pytest.fixture(scope="module")
def alone(tiny: Path) -> Alone:
    return Alone(tiny)


def slow_down(made: Engine, seconds: float) -> None:
    """Make every step take some time."""
    core: Any = made._core
    step = core._step

    def slow() -> None:
        time.sleep(seconds)
        step()

    core._step = slow


@contextmanager
def held(made: Engine, after: int = 0) -> Iterator[None]:
    """Let the engine make `after` steps, and no more while the block runs."""
    core: Any = made._core
    step, go_on, made_steps = core._step, threading.Event(), 0

    def wait_and_step() -> None:
        nonlocal made_steps
        made_steps += 1
        if made_steps > after:
            assert go_on.wait(120)
        step()

    core._step = wait_and_step
    try:
        yield
    finally:
        go_on.set()


def fail_launches(made: Engine, error: Exception, after: int = 0) -> None:
    resident: Any = made._core.resident
    launch, count = resident.launch, 0

    def launch_or_fail(steps: int) -> Any:
        nonlocal count
        count += 1
        if count > after:
            raise error
        return launch(steps)

    resident.launch = launch_or_fail


def wait_for(is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_there():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_stream_gives_every_token_once_and_in_order(tiny: Path, alone: Alone) -> None:
    with engine(tiny) as made:
        deltas = list(made.ask(PROMPTS[0], greedy(20, **FREE)))
    tokens = [token for delta in deltas for token in delta.token_ids]
    assert tokens == alone(PROMPTS[0], greedy(20), stop_ids=())
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason is FinishReason.LENGTH
    metrics = deltas[-1].metrics
    assert metrics is not None
    assert metrics.queued_s is not None
    assert metrics.ttft_s is not None
    assert metrics.tpot_s is not None
    assert 0 <= metrics.queued_s <= metrics.ttft_s
    assert metrics.tpot_s > 0


def test_async_readers_get_the_same(tiny: Path, alone: Alone) -> None:
    async def read(made: Engine, prompt: list[int]) -> list[int]:
        return [t async for d in made.ask(prompt, greedy(15, **FREE)) for t in d.token_ids]

    async def run() -> list[list[int]]:
        async with Engine(config(tiny)) as made:
            answers = await asyncio.gather(*(read(made, prompt) for prompt in PROMPTS))
            assert await made.drain(10)
            return list(answers)

    answers = asyncio.run(run())
    assert answers == [alone(prompt, greedy(15), stop_ids=()) for prompt in PROMPTS]


def test_threads_and_event_loops_share_one_engine(tiny: Path, alone: Alone) -> None:
    found: dict[int, list[int]] = {}

    def blocking(made: Engine, at: int) -> None:
        for turn in range(4):
            prompt = PROMPTS[(at + turn) % 6]
            output = made.ask(prompt, greedy(8, **FREE)).result(60)
            found[at * 10 + turn] = list(output.token_ids)

    def looping(made: Engine, at: int) -> None:
        async def one(turn: int) -> None:
            stream = made.ask(PROMPTS[(at + turn) % 6], greedy(8, **FREE))
            found[at * 10 + turn] = list((await stream.wait()).token_ids)

        async def run() -> None:
            await asyncio.gather(*map(one, range(4)))

        asyncio.run(run())

    with engine(tiny) as made:
        threads = [
            threading.Thread(target=(blocking, looping)[at % 2], args=(made, at)) for at in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    ideal = [alone(prompt, greedy(8), stop_ids=()) for prompt in PROMPTS]
    assert found == {at * 10 + t: ideal[(at + t) % 6] for at in range(6) for t in range(4)}


def test_a_newcomer_does_not_wait_for_a_whole_launch(tiny: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ended_at: list[int] = []
    with engine(tiny, steps_per_launch=200) as made:
        resident: Any = made._core.resident
        launch = resident.launch

        def held_launch(steps: int) -> Any:
            if steps > 100:  # enough to take the first to its end
                begun.set()
                assert go_on.wait(120)
            return launch(steps)

        resident.launch = held_launch
        first = made.ask(PROMPTS[0], greedy(200, **FREE))
        assert begun.wait(120)
        second = Request("second", tuple(PROMPTS[1]), greedy(1, **FREE))
        made.send(second, [lambda _: ended_at.append(made._core.tally.steps)])
        go_on.set()
        assert len(first.result(60).token_ids) == 200
    assert len(ended_at) == 1
    assert ended_at[0] < 100


def test_a_slow_reader_gets_larger_pieces_and_holds_nobody_up(tiny: Path) -> None:
    async def run() -> None:
        with engine(tiny, steps_per_launch=1) as made:
            with held(made, after=3):
                slow = made.ask(PROMPTS[0], greedy(60, **FREE))
                first = await anext(slow)
            other = await asyncio.to_thread(made.ask(PROMPTS[1], greedy(60, **FREE)).result)
            assert other.finish_reason is FinishReason.LENGTH
            await asyncio.to_thread(slow.result)
            rest = [delta async for delta in slow]
            assert len(rest) == 1
            assert len(first.token_ids) + len(rest[0].token_ids) == 60

    asyncio.run(run())


def test_a_reader_that_gives_up_and_a_closed_event_loop_harm_nobody(tiny: Path) -> None:
    with engine(tiny, steps_per_launch=1) as made:

        async def give_up() -> None:
            stream = made.ask(PROMPTS[0], greedy(40, **FREE))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stream.wait(), 0.03)

        with held(made, after=3):
            asyncio.run(give_up())
        assert made.ask(PROMPTS[1], greedy(5, **FREE)).result(30).finish_reason == "length"


@pytest.mark.parametrize("moment", ["waiting", "prefilling", "decoding", "finished"])
def test_a_request_can_be_cancelled_at_any_moment(tiny: Path, moment: str) -> None:
    steps = {"waiting": 1, "prefilling": 2, "decoding": 9, "finished": 1000}[moment]
    with engine(tiny, max_batch=1, prefill_tokens=16, steps_per_launch=1) as made:
        with held(made, after=steps):
            before = made.ask(PROMPTS[1], greedy(10, **FREE)) if moment == "waiting" else None
            stream = made.ask(PROMPTS[5], greedy(30, **FREE))
            if moment == "decoding":
                next(iter(stream))
            if moment == "finished":
                stream.result(30)
            stream.cancel()
            stream.cancel()
        output = stream.result(30)
        assert output.finish_reason == ("length" if moment == "finished" else "abort")
        assert len(output.token_ids) < 30 or moment == "finished"
        assert made.ask(PROMPTS[1], greedy(3, **FREE)).result(30).finish_reason == "length"
        if before is not None:
            assert before.result(30).finish_reason == "length"


def test_a_storm_of_cancels_from_many_threads_leaves_nothing_behind(tiny: Path) -> None:
    def storm(made: Engine, seed: int) -> None:
        for turn in range(12):
            stream = made.ask(PROMPTS[(seed + turn) % 6], greedy(20, **FREE))
            time.sleep(0.001 * ((seed * 7 + turn * 3) % 9))
            stream.cancel()
            assert stream.result(60).finish_reason in ("abort", "length")

    with engine(tiny, pages=20) as made:
        threads = [threading.Thread(target=storm, args=(made, seed)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sum(made.counts().ends.values()) == 72


def test_several_answers_share_the_prompt_and_are_drawn_apart(tiny: Path, alone: Alone) -> None:
    params = SamplingParams(max_tokens=12, temperature=1.5, seed=5, n=4, ignore_eos=True)
    with engine(tiny) as made:
        output = made.ask(PROMPTS[2], params).result(60)
        again = made.ask(PROMPTS[2], params).result(60)
        single = made.ask(
            PROMPTS[2], SamplingParams(**FREE, max_tokens=12, temperature=1.5, seed=5)
        )
        assert single.result(60).token_ids == output.token_ids
    assert [choice.index for choice in output.choices] == [0, 1, 2, 3]
    answers = [choice.token_ids for choice in output.choices]
    assert len(set(answers)) == 4
    assert [choice.token_ids for choice in again.choices] == answers
    assert [choice.metrics.cached_tokens for choice in output.choices] == [0, 32, 32, 32]
    assert list(answers[0]) == alone(PROMPTS[2], params, seed=5, stop_ids=())


def test_the_deltas_of_several_answers_say_whose_they_are(tiny: Path) -> None:
    with engine(tiny, steps_per_launch=2) as made:
        stream = made.ask(PROMPTS[2], SamplingParams(max_tokens=9, n=3, **FREE))
        pieces: dict[int, list[Delta]] = {}
        for delta in stream:
            pieces.setdefault(delta.index, []).append(delta)
        output = stream.result(1)
    for choice in output.choices:
        mine = pieces[choice.index]
        assert sum((delta.token_ids for delta in mine), ()) == choice.token_ids
        assert mine[-1].finish_reason == choice.finish_reason == "length"


def test_cancelling_several_answers_ends_those_that_have_not_begun(tiny: Path) -> None:
    with engine(tiny, steps_per_launch=1) as made:
        with held(made, after=1):
            stream = made.ask(PROMPTS[5], SamplingParams(max_tokens=30, n=5, **FREE))
            stream.cancel()
        ends = {choice.finish_reason for choice in stream.result(30).choices}
        assert ends == {FinishReason.ABORT}


def test_requests_without_a_seed_draw_apart_and_an_engine_draws_the_same_again(tiny: Path) -> None:
    def draw(seed: int) -> list[tuple[int, ...]]:
        params = SamplingParams(max_tokens=10, temperature=1.5, **FREE)
        with engine(tiny, seed=seed) as made:
            return [made.ask(PROMPTS[0], params).result(30).token_ids for _ in range(3)]

    first = draw(1)
    assert len(set(first)) == 3
    assert draw(1) == first
    assert draw(2) != first


@pytest.mark.parametrize(
    ("prompt", "params", "code"),
    [
        ([], {}, "OST5004"),
        ([3] * 256, {}, "OST5002"),
        ([3, 96], {}, "OST5043"),
        ([-1], {}, "OST5043"),
        ([3], {"stop_token_ids": [96]}, "OST5043"),
        ([3], {"stop_token_ids": list(range(3, 40))}, "OST5020"),
        ([3], {"logit_bias": {96: 1.0}}, "OST5021"),
        ([3], {"logprobs": 4}, "OST5044"),
        ([3], {"stop": "x"}, "OST5040"),
        ("a text", {}, "OST5040"),
        ([{"role": "user", "content": "x"}], {}, "OST5040"),
        (b"bytes", {}, "OST5042"),
        ([1.5], {}, "OST5042"),
        ([True], {}, "OST5042"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(
    tiny: Path, prompt: Any, params: dict[str, Any], code: str
) -> None:
    with engine(tiny) as made:
        with pytest.raises(UsageError) as caught:
            made.ask(prompt, SamplingParams(**params))
        assert caught.value.code == code
        assert made.counts().scheduler.prompt_tokens == 0


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(tiny: Path) -> None:
    with engine(tiny) as made, pytest.raises(PromptTooLong, match="256 tokens and at most 255 fit"):
        made.ask([3] * 256)


def test_the_longest_prompt_gets_one_token(tiny: Path) -> None:
    with engine(tiny) as made:
        output = made.ask([3] * 255, greedy(9, **FREE)).result(30)
    assert len(output.token_ids) == 1
    assert output.finish_reason == "length"


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_no_tokens_cannot_be_asked_for(max_tokens: int) -> None:
    with pytest.raises(UsageError, match=f"max_tokens must be at least 1, got {max_tokens}"):
        SamplingParams(max_tokens=max_tokens)


def test_a_name_that_is_taken_is_refused_and_can_be_used_again_later(tiny: Path) -> None:
    request = Request("mine", tuple(PROMPTS[0]), greedy(30, **FREE))
    with engine(tiny) as made:
        slow_down(made, 0.005)
        stream = made.submit(request)
        with pytest.raises(UsageError, match="'mine' is still running"):
            made.submit(request)
        whole = stream.result(30).token_ids
        assert made.submit(request).result(30).token_ids == whole


def test_a_request_without_a_time_comes_anew_each_time_it_is_submitted(tiny: Path) -> None:
    request = Request("mine", tuple(PROMPTS[0]), greedy(1, **FREE))
    waits = []
    with engine(tiny) as made:
        for _ in range(2):
            began = time.monotonic()
            metrics = made.submit(request).result(30).metrics
            assert metrics.ttft_s is not None
            waits.append((metrics.ttft_s, time.monotonic() - began))
    assert request.arrival_s == 0
    assert all(ttft_s <= wait_s for ttft_s, wait_s in waits)


def test_a_full_queue_refuses_with_its_numbers_and_takes_more_later(tiny: Path) -> None:
    with engine(tiny, max_batch=1, max_waiting=2) as made:
        with held(made, after=1):
            first = made.ask(PROMPTS[0], greedy(30, **FREE))
            wait_for(lambda: made.counts().scheduler.running == 1)
            others = [made.ask(PROMPTS[0], greedy(2, **FREE)) for _ in range(2)]
            with pytest.raises(QueueFull, match="2 of 2 requests"):
                made.ask(PROMPTS[0], greedy(2))
            with pytest.raises(QueueFull):
                made.ask(PROMPTS[0], SamplingParams(n=2))
            with pytest.raises(UsageError, match="max_waiting lets 2"):  # not now, and not later
                made.ask(PROMPTS[0], SamplingParams(n=3))
        for stream in (first, *others):
            assert stream.result(30).finish_reason == "length"
        assert made.ask(PROMPTS[0], greedy(2, **FREE)).result(30).finish_reason == "length"


def test_a_drain_lets_the_living_finish_and_refuses_newcomers(tiny: Path) -> None:
    with engine(tiny, max_batch=1) as made:
        slow_down(made, 0.005)
        streams = [made.ask(prompt, greedy(8, **FREE)) for prompt in PROMPTS]
        drained = threading.Thread(target=made.wait_drained)
        drained.start()
        wait_for(lambda: not made.health().is_taking)
        with pytest.raises(EngineDown, match="draining and takes no new requests") as caught:
            made.ask(PROMPTS[0])
        assert caught.value.code == "OST5140"
        drained.join(60)
        assert [stream.result(0).finish_reason for stream in streams] == ["length"] * 6


def test_a_drain_aborts_what_is_left_at_its_deadline(tiny: Path) -> None:
    with engine(tiny, max_batch=1, steps_per_launch=1) as made:
        slow_down(made, 0.2)  # a drain waits for the step under way; all of them take a minute
        streams = [made.ask(prompt, greedy(50, **FREE)) for prompt in PROMPTS]
        assert not made.wait_drained(0.1)
        assert {stream.result(0).finish_reason for stream in streams} == {"abort"}


def test_closing_aborts_what_lives_and_joins_the_thread(tiny: Path) -> None:
    made = Engine(config(tiny, steps_per_launch=1))
    slow_down(made, 0.2)
    streams = [made.ask(prompt, greedy(50, **FREE)) for prompt in PROMPTS]
    made.close()
    made.close()
    assert {stream.result(0).finish_reason for stream in streams} == {"abort"}
    assert not made._loop._thread.is_alive()
    assert made.health().why == "the engine is closed"
    with pytest.raises(EngineDown, match="closed"):
        made.ask(PROMPTS[0])
    with pytest.raises(EngineDown, match="closed"):
        made.update_weights(tiny)


def test_a_failed_step_is_told_to_its_requests_and_the_engine_goes_on(tiny: Path) -> None:
    with engine(tiny) as made:
        resident: Any = made._core.resident
        launch = resident.launch
        fail_launches(made, RuntimeError("the dog ate it"))
        output = made.ask(PROMPTS[0], greedy(9, **FREE)).result(30)
        assert output.finish_reason == "error"
        assert "the dog ate it" in str(output.error)
        resident.launch = launch
        assert made.ask(PROMPTS[0], greedy(9, **FREE)).result(30).finish_reason == "length"
        assert made.health().is_healthy
        assert dict(made.counts().failures) == {"OST5142": 1, "step": 1}


def test_a_device_fault_ends_everything_loudly(
    tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(tiny, max_batch=1, steps_per_launch=1) as made:
        fault = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        fail_launches(made, fault, after=2)
        with caplog.at_level(logging.CRITICAL):
            with held(made):
                streams = [made.ask(prompt, greedy(9, **FREE)) for prompt in PROMPTS]
            outputs = [stream.result(30) for stream in streams]
        assert {output.finish_reason for output in outputs} == {"error"}
        assert all("illegal memory access" in str(output.error) for output in outputs)
        wait_for(lambda: not made.health().is_healthy)
        assert "illegal memory access" in str(made.health().why)
        assert not made.health().is_taking
        with pytest.raises(EngineDown, match="the device failed") as caught:
            made.ask(PROMPTS[0])
        assert caught.value.code == "OST5141"
        with pytest.raises(EngineDown):
            made.update_weights(tiny)
        assert made.wait_drained(1)
        streams[0].cancel()
    assert any("illegal memory access" in record.message for record in caplog.records)


def test_weights_are_replaced_while_requests_run(tiny: Path, alone: Alone) -> None:
    with engine(tiny, steps_per_launch=1) as made:
        slow_down(made, 0.003)
        stream = made.ask(PROMPTS[0], greedy(30, **FREE))
        next(iter(stream))
        made.update_weights(tiny)
        made.update_weights(tiny, "restart")
        with pytest.raises(UsageError, match="in_flight must be"):
            made.update_weights(tiny, "explode")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="lacks"):
            made.update_weights({})
        tokens = list(stream.result(30).token_ids)
    assert tokens == alone(PROMPTS[0], greedy(30), stop_ids=())


def test_the_files_of_new_weights_are_read_before_the_loop_stops_for_them(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    with engine(tiny) as made:
        core: Any = made._core
        plain = core.update_weights

        def update(*args: Any) -> None:
            seen.append(("replaced", threading.get_ident()))
            plain(*args)

        core.update_weights = update
        monkeypatch.setattr(
            "ostinato.llm.engine.read_ahead",
            lambda folder: seen.append((f"read {folder.name}", threading.get_ident())),
        )
        made.update_weights(tiny)
        made.update_weights(str(tiny))
    here = threading.get_ident()
    assert [what for what, _ in seen] == [f"read {tiny.name}", "replaced"] * 2
    assert [thread == here for _, thread in seen] == [True, False] * 2


def test_an_idle_engine_waits_and_does_not_spin(tiny: Path) -> None:
    with engine(tiny) as made:
        made.ask(PROMPTS[0], greedy(2, **FREE)).result(30)
        wait_for(lambda: not made.health().living)
        loop: Any = made._loop
        rounds = 0
        obey = loop._obey

        def counted() -> None:
            nonlocal rounds
            rounds += 1
            obey()

        loop._obey = counted
        time.sleep(0.5)
        assert rounds < 10  # the last ones before it rests; one that spins makes thousands


def test_shapes_in_use_are_kept_in_a_file_and_recorded_at_the_next_start(
    tiny: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tiny.json"
    with engine(tiny, shape_profile=file, backend="tape") as made:
        for _ in range(3):
            made.ask(PROMPTS[0], greedy(4, **FREE)).result(30)
        made.ask(PROMPTS[5], SamplingParams(max_tokens=4, temperature=1.0, **FREE)).result(30)
    hot = ShapeProfile.load(file).hottest()
    assert [(shape.rows, shape.pages, shape.level) for shape in hot] == [(1, 2, 0), (1, 8, 1)]
    with engine(tiny, shape_profile=file, backend="tape") as made:
        assert made.wait_warm(60)
        assert made.health().is_warm
        assert made.report().recordings == 2
        made.ask(PROMPTS[0], greedy(4, **FREE)).result(30)
        assert made.report().recordings == 2


@pytest.mark.parametrize(
    "content",
    [
        '{"version": 99, "shapes": []}',
        '{"version": 2, "shapes": [[Infinity, 1, 1, false, 3]]}',
        '{"version": 2, "shapes": [[1, 1, "a", false, 3]]}',
        '{"version": 2, "shapes": 7}',
        "[" * 200_000,
        "null",
    ],
    ids=range(6),
)
def test_a_profile_that_cannot_be_read_is_told_and_left_out(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "shapes.json"
    file.write_text(content)
    assert ShapeProfile.load(file).hottest() == []
    assert "cannot be read" in caplog.text
    assert ShapeProfile.load(tmp_path / "none.json").hottest() == []


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "del made", "made.close()"])
def test_an_interpreter_exits_without_waiting_for_an_engine(tiny: Path, ending: str) -> None:
    program = f"""
from pathlib import Path
from llm.small_engine import config, greedy
from ostinato.llm.engine import Engine
made = Engine(config(Path({str(tiny)!r})))
stream = made.ask([5, 6, 7], greedy(200, ignore_eos=True))
next(iter(stream))
{ending}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        timeout=90,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (3 if "SystemExit" in ending else 0), done.stderr
    assert done.stderr == ""


def test_an_engine_that_nobody_holds_ends_its_thread(tiny: Path) -> None:
    made = Engine(config(tiny))
    made.ask(PROMPTS[0], greedy(2)).result(30)
    thread = made._loop._thread
    del made
    gc.collect()
    wait_for(lambda: not thread.is_alive())


def test_an_answer_is_freed_without_a_search_for_garbage(tiny: Path) -> None:
    with engine(tiny) as made:
        stream = made.ask(PROMPTS[0], greedy(2))
        stream.result(30)
        held = weakref.ref(stream._channels[0])
        gc.disable()
        try:
            del stream
            wait_for(lambda: held() is None)  # the engine's thread may still hold the last event
        finally:
            gc.enable()


def test_on_a_cpu_nothing_is_recorded_on_a_guess(tiny: Path) -> None:
    with engine(tiny, backend="tape") as made:
        assert made.wait_warm(0)
        assert made.report().recordings == 0
