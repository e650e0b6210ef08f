"""An engine used as nobody should: whoever does is told at once, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from llm.small_engine import Steps, config, engine, greedy, ids
from ostinato.errors import ResourceError, UsageError, WrongTypeError
from ostinato.llm.answers import Delta
from ostinato.llm.engine import Engine
from ostinato.llm.faults import EngineDown, step_failed
from ostinato.llm.models.weights import WeightsLost
from ostinato.llm.reply import Event, Reply
from ostinato.llm.request import FinishReason, Request
from ostinato.llm.stream import Channel, Stream
from ostinato.llm.waiters import Waiters

PROMPT = ids(9, 3)
LONG: dict[str, Any] = {"ignore_eos": True}


def test_cancelling_a_finished_request_spares_another_of_its_name(tiny: Path) -> None:
    with engine(tiny) as made:
        first = made.ask(PROMPT, greedy(2, **LONG), request_id="same")
        first.result(30)
        second = made.ask(PROMPT, greedy(60, **LONG), request_id="same")
        first.cancel()
        assert second.result(30).choices[0].finish_reason is FinishReason.LENGTH


def test_a_grammar_that_comes_too_late_spares_another_of_its_name(tiny: Path) -> None:
    steps = Steps(tiny)
    late = Reply(Request("r0", tuple(PROMPT)), 0)
    steps.core.books.expect([late])
    steps.core.cancel("r0")
    steps.core.take_news()
    name = steps.submit(PROMPT, greedy(3), stop_ids=())
    assert name == late.request_id
    steps.core.admit([late], step_failed(ValueError("no grammar")))
    steps.run()
    assert steps.answers[name].finish is FinishReason.LENGTH


def test_every_reader_of_a_stream_sees_its_end(tiny: Path) -> None:
    with engine(tiny) as made:
        for _ in range(5):
            stream = made.ask(PROMPT, greedy(30, **LONG))
            got: list[int] = []

            def read(stream: Any = stream, got: list[int] = got) -> None:
                got += [token for delta in stream for token in delta.token_ids]

            readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(20)
            assert not any(reader.is_alive() for reader in readers)
            assert len(got) == 30


def test_every_task_that_reads_a_stream_sees_its_end(tiny: Path) -> None:
    async def read_twice(made: Engine) -> list[list[int]]:
        stream = made.ask(PROMPT, greedy(30, **LONG))

        async def read() -> list[int]:
            return [token async for delta in stream for token in delta.token_ids]

        return list(await asyncio.wait_for(asyncio.gather(read(), read()), 20))

    with engine(tiny) as made:
        one, other = asyncio.run(read_twice(made))
        assert len(one + other) == 30


def test_who_waits_for_news_that_another_reader_took_is_told_of_the_end() -> None:
    channel = Channel(0, None)
    stream = Stream("r", PROMPT, [channel], lambda: None)
    channel.await_news = Waiters()  # so that the reader below is not faster than the one that takes
    got: list[Delta] = []
    reader = threading.Thread(target=lambda: got.extend(stream), daemon=True)
    reader.start()
    time.sleep(0.1)
    reply = Reply(Request("r", tuple(PROMPT)), 0)
    channel.put(Event(reply, (1,), finish=FinishReason.LENGTH))
    assert next(iter(stream)).token_ids == (1,)
    reader.join(5)
    assert not reader.is_alive()
    assert got == []


def test_a_reader_that_begins_again_after_the_end_is_told(tiny: Path) -> None:
    with engine(tiny) as made:
        stream = made.ask(PROMPT, greedy(5, **LONG))
        begun = iter(stream)
        read = [next(begun), *stream]  # to begin before the end is to go on
        assert sum(len(delta.token_ids) for delta in read) == 5
        for begin in (iter, list, aiter):
            with pytest.raises(UsageError, match="call result") as caught:
                begin(stream)
            assert caught.value.code == "OST5048"
        assert list(begun) == []
        assert len(stream.result(30).token_ids) == stream.new_tokens == 5


def test_a_task_that_begins_again_after_the_end_is_told(tiny: Path) -> None:
    async def twice(made: Engine) -> int:
        stream = made.ask(PROMPT, greedy(5, **LONG))
        tokens = [token async for delta in stream for token in delta.token_ids]
        with pytest.raises(UsageError, match="call result") as caught:
            [delta async for delta in stream]
        assert caught.value.code == "OST5048"
        return len(tokens)

    with engine(tiny) as made:
        assert asyncio.run(twice(made)) == 5


def test_a_stream_counts_its_tokens_before_anybody_reads_them() -> None:
    channels = [Channel(0, None), Channel(1, None)]
    stream = Stream("r", PROMPT, channels, lambda: None)
    reply = Reply(Request("r", tuple(PROMPT)), 0)
    channels[0].put(Event(reply, (1, 2)))
    channels[1].put(Event(reply, (3,)))
    assert stream.new_tokens == 3
    next(iter(stream))
    channels[0].put(Event(reply, (4,)))
    assert stream.new_tokens == 4


@pytest.mark.parametrize(
    ("timeout", "kind"),
    [
        ("x", WrongTypeError), ([1], WrongTypeError), (True, WrongTypeError), (-1, UsageError),
        (math.nan, UsageError), (math.inf, UsageError), (1e300, UsageError),
    ],
    ids=repr,
)  # fmt: skip
def test_a_time_to_wait_that_is_none_is_refused_and_nothing_is_begun(
    tiny: Path, timeout: Any, kind: type[UsageError]
) -> None:
    with engine(tiny) as made:
        stream = made.ask(PROMPT, greedy(2, **LONG))
        waits: list[Callable[[], object]] = [
            lambda: asyncio.run(made.drain(timeout)),
            lambda: made.wait_drained(timeout),
            lambda: made.wait_warm(timeout),
            lambda: stream.result(timeout),
        ]
        for wait in waits:
            with pytest.raises(kind, match=r"timeout(_s)? must be") as caught:
                wait()
            assert caught.value.code == "OST5031"
        assert made.health().is_taking
        assert len(stream.result(np.float32(30)).token_ids) == 2


def in_a_fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; return its exit status, or -1 if it does not end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - pytest must not go on in two processes
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_is_refused_and_harms_nobody(tiny: Path, tmp_path: Path) -> None:
    profile = tmp_path / "shapes.json"
    with engine(tiny, shape_profile=profile) as made:
        stream = made.ask(PROMPT, greedy(2, **LONG))
        stream.result(30)

        def use() -> None:
            calls: list[Callable[[], object]] = [
                lambda: made.ask(PROMPT),
                lambda: made.start_update({}),
                lambda: made.wait_drained(1),
                lambda: made.wait_warm(1),
                made.counts,
                stream.cancel,
            ]
            for call in calls:
                with pytest.raises(EngineDown, match="another process") as caught:
                    call()
                assert caught.value.code == "OST5145"
            assert not made.health().is_healthy
            made.close()

        # Locks that another thread holds at the fork stay locked in the child for ever.
        with made._loop._entry, made._core.books._lock:
            assert in_a_fork(use) == 0
        assert not profile.exists()
        made.ask(PROMPT, greedy(2)).result(30)


def test_weights_lost_half_way_end_the_engine_loudly(tiny: Path) -> None:
    with engine(tiny) as made:
        core: Any = made._core

        def lose(*_: Any) -> None:
            raise WeightsLost("the disk is gone", code="OST5212", remedy="load anew")

        core.update_weights = lose
        with pytest.raises(WeightsLost):
            made.update_weights(tiny)
        made._loop._thread.join(20)
        with pytest.raises(EngineDown, match="the disk is gone"):
            made.ask(PROMPT, greedy(2))
        assert not made.health().is_healthy


@pytest.mark.parametrize("given", [None, "hi", [1, 2]], ids=str)
def test_what_is_no_request_is_refused(tiny: Path, given: Any) -> None:
    with engine(tiny) as made, pytest.raises(WrongTypeError, match="a Request") as caught:
        made.submit(given)
    assert caught.value.code == "OST5042"


@pytest.mark.parametrize("given", [None, "smollm2", {"model": "smollm2"}], ids=str)
def test_an_engine_of_no_config_is_refused(given: Any) -> None:
    with pytest.raises(WrongTypeError, match="an EngineConfig") as caught:
        Engine(given)
    assert caught.value.code == "OST5031"


def test_counts_can_be_sent_to_another_process(tiny: Path) -> None:
    with engine(tiny) as made:
        made.ask(PROMPT, greedy(2, **LONG)).result(30)
        counts = pickle.loads(pickle.dumps(made.counts()))
        assert counts.ends == {FinishReason.LENGTH: 1}


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("", "a folder, not a file"),
        ("missing/shapes.json", "there is no folder"),
        ("/dev/null", "a device"),
        ("/proc/shapes.json", "nothing can be written"),
        (5, "the path of a file"),
    ],
)
def test_a_shape_profile_that_cannot_be_written_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, words: str
) -> None:
    monkeypatch.setattr("ostinato.llm.engine.load", lambda _: pytest.fail("the model was loaded"))
    file = tmp_path / place if isinstance(place, str) else place
    with pytest.raises(UsageError, match=words) as caught:
        Engine(config(tmp_path, shape_profile=file))
    assert caught.value.code == "OST5031"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"steps_per_launch": 10**9}, UsageError, "at most 1024"),
        ({"device": None}, WrongTypeError, "device must be"),
        ({"max_batch": 10**12}, ResourceError, "the state of max_batch requests takes"),
        ({"max_batch": 10**12, "kv_memory": "auto"}, ResourceError, "the state of max_batch"),
        ({"page_tokens": 10**12, "kv_memory": "auto"}, ResourceError, "or page_tokens"),
        ({"most_logprobs": 10**9}, UsageError, "the model knows 96 tokens"),
        ({"backend": "cuda"}, UsageError, "backend is 'cuda', and the model is to run on cpu"),
        ({"device": "gpu"}, UsageError, "pass 'auto' or 'cpu' as device"),
        ({"dtype": torch.float64}, UsageError, "'float64' is not a number type"),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_met_is_named_before_the_model_takes_memory(
    tiny: Path,
    options: dict[str, Any],
    kind: type[Exception],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ostinato.llm.loading.build", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(kind, match=words):
        Engine(config(tiny, **options))


def test_torch_s_own_number_types_are_taken_too(tiny: Path) -> None:
    with engine(tiny, dtype=torch.bfloat16) as made:
        assert {weight.dtype for weight in made._decoder.parameters()} == {torch.bfloat16}


def test_a_state_dict_that_cannot_be_copied_leaves_the_answers_as_they_were(tiny: Path) -> None:
    with engine(tiny) as made:
        before = made.ask(PROMPT, greedy(5, **LONG)).result(30).choices[0].token_ids
        state = {name: weight + 1 for name, weight in made._decoder.destinations().items()}
        last = list(state)[-1]
        with pytest.raises(WrongTypeError, match=last) as caught:
            made.update_weights({**state, last: torch.empty_like(state[last], device="meta")})
        assert caught.value.code == "OST5205"
        assert made.ask(PROMPT, greedy(5, **LONG)).result(30).choices[0].token_ids == before
