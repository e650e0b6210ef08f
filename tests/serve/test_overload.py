"""A full queue refuses at once, says when to come back, and that is true."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest

pytest.importorskip("openai", reason="needs openai")

import openai

from serve.running import Running, running, slow_down, wait_for

PATH = "/v1/completions"


def body(tokens: int, prompt: str = "hello") -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}


@contextmanager
def asking(service: Running, threads: int) -> Iterator[tuple[httpx.Client, ThreadPoolExecutor]]:
    """One client for all threads: to make one takes as long as many answers."""
    limits = httpx.Limits(max_connections=threads + 4)
    with (
        httpx.Client(base_url=service.url, timeout=120, limits=limits) as client,
        ThreadPoolExecutor(threads) as pool,
    ):
        yield client, pool


def standing(made: Running) -> tuple[int, int]:
    counts = made.engine.counts().scheduler
    return counts.running, counts.waiting


def test_the_queue_is_bounded_by_requests_and_tokens_without_being_asked(service: Running) -> None:
    limits = service.engine.limits
    assert limits.max_waiting <= 10_000
    assert limits.max_waiting_tokens <= 10_000_000


def test_one_more_than_may_wait_is_refused_at_once_with_a_time(tiny_chat: Path) -> None:
    with running(tiny_chat, engine={"max_batch": 1, "max_waiting": 2}) as made:
        slow_down(made.engine, 0.005)
        with asking(made, 3) as (client, pool):
            asked = [pool.submit(client.post, PATH, json=body(150))]
            wait_for(lambda: standing(made) == (1, 0))
            asked += [pool.submit(client.post, PATH, json=body(150)) for _ in range(2)]
            wait_for(lambda: standing(made) == (1, 2))
            refused = client.post(PATH, json=body(1))
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["code"] == "queue_full"
            assert refused.json()["error"]["type"] == "rate_limit_error"
            assert [one.result().status_code for one in asked] == [200, 200, 200]


def test_prompt_tokens_that_wait_are_bounded_too(tiny_chat: Path) -> None:
    with running(tiny_chat, engine={"max_batch": 1, "max_waiting_tokens": 100}) as made:
        slow_down(made.engine, 0.005)
        with asking(made, 2) as (client, pool):
            running_one = pool.submit(client.post, PATH, json=body(100))
            wait_for(lambda: made.engine.counts().scheduler.running == 1)
            waiting = pool.submit(client.post, PATH, json=body(2, "x" * 80))
            wait_for(lambda: made.engine.counts().scheduler.waiting == 1)
            refused = client.post(PATH, json=body(1, "y" * 80))
            assert refused.status_code == 429
            assert "80" in refused.json()["error"]["message"]
            assert running_one.result().status_code == waiting.result().status_code == 200


@pytest.mark.slow
def test_who_comes_back_when_told_to_is_let_in(tiny_chat: Path) -> None:
    with running(tiny_chat, engine={"max_batch": 1, "max_waiting": 3}) as made:
        slow_down(made.engine, 0.01)

        def obey() -> list[int]:
            """Ask, wait as told, ask again; return what each try was answered."""
            answers = []
            while 200 not in answers and len(answers) < 6:
                answer = client.post(PATH, json=body(20))
                answers.append(answer.status_code)
                sleep(int(answer.headers.get("retry-after", 0)))
            return answers

        with asking(made, 16) as (client, pool):
            # The first four are let in and show how fast the queue moves; so the rest can be told.
            first = [pool.submit(client.post, PATH, json=body(20))]
            wait_for(lambda: standing(made) == (1, 0))
            first += [pool.submit(client.post, PATH, json=body(20)) for _ in range(3)]
            wait_for(lambda: standing(made) == (1, 3))
            tries = [one.result() for one in [pool.submit(obey) for _ in range(12)]]
            assert all(one.result().status_code == 200 for one in first)
        assert any(429 in answers for answers in tries)
        assert all(answers[-1] == 200 for answers in tries)
        assert sum(map(len, tries)) <= 3 * len(tries)  # most are told once


def test_the_official_client_waits_and_tries_again(tiny_chat: Path) -> None:
    with running(tiny_chat, engine={"max_batch": 1, "max_waiting": 1}) as made:
        undo = slow_down(made.engine, 0.01)
        with asking(made, 2) as (http, pool):
            first = pool.submit(http.post, PATH, json=body(200))
            wait_for(lambda: made.engine.counts().scheduler.running == 1)
            second = pool.submit(http.post, PATH, json=body(1))
            wait_for(lambda: made.engine.counts().scheduler.waiting == 1)
            with openai.OpenAI(base_url=f"{made.url}/v1", api_key="x", max_retries=5) as client:
                threading.Timer(0.3, undo).start()
                answer = client.completions.create(model="tiny", prompt="a", max_tokens=1)
            assert answer.choices
            assert first.result().status_code == second.result().status_code == 200
