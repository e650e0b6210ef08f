"""A front end that stops: not ready, nobody new, open answers finished or told why they end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.running import Running, hold, running, slow_down, wait_for

LONG: dict[str, Any] = {"prompt": "hello", "max_tokens": 3000, "ignore_eos": True}


@pytest.fixture
def made(tiny_chat: Path) -> Iterator[Running]:
    with running(tiny_chat) as service:
        slow_down(service.engine, 0.005)
        yield service


def stop(service: Running, bound_s: float) -> Future[bool]:
    return asyncio.run_coroutine_threadsafe(service.services.drain.run(bound_s), service.loop)


def stream_in_thread(service: Running, body: dict[str, Any]) -> tuple[threading.Thread, list[str]]:
    lines: list[str] = []

    def read() -> None:
        url = f"{service.url}/v1/completions"
        with httpx.stream("POST", url, json={**body, "stream": True}, timeout=120) as answer:
            lines.extend(line for line in answer.iter_lines() if line)

    thread = threading.Thread(target=read)
    thread.start()
    wait_for(lambda: service.engine.counts().scheduler.running > 0)
    return thread, lines


def test_while_it_stops_it_is_alive_and_not_ready_and_lets_nobody_in(made: Running) -> None:
    assert httpx.get(f"{made.url}/readyz").status_code == 200
    thread, lines = stream_in_thread(made, {**LONG, "max_tokens": 60})
    stopping = stop(made, 100)
    assert httpx.get(f"{made.url}/livez").status_code == 200
    not_ready = httpx.get(f"{made.url}/readyz")
    assert not_ready.status_code == 503
    assert "stopping" in not_ready.json()["why"]
    refused = httpx.post(f"{made.url}/v1/completions", json=LONG)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "OST6023"
    assert refused.headers["connection"] == "close"
    assert stopping.result(120)
    thread.join(120)
    assert lines[-1] == "data: [DONE]"


def test_a_stream_that_does_not_end_in_time_is_told_why(made: Running) -> None:
    thread, lines = stream_in_thread(made, LONG)
    assert not stop(made, 0.4).result(120)
    thread.join(120)
    last = json.loads(lines[-1].removeprefix("data: "))
    assert last["error"]["code"] == "OST6022"
    assert "stopping" in last["error"]["message"]
    assert "[DONE]" not in "".join(lines)
    wait_for(made.is_clean)


def test_an_answer_that_is_not_streamed_is_cut_with_503(made: Running) -> None:
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(
            httpx.post(f"{made.url}/v1/completions", json=LONG, timeout=120)
        )
    )
    thread.start()
    wait_for(lambda: made.engine.counts().scheduler.running > 0)
    assert not stop(made, 0.4).result(120)
    thread.join(120)
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "OST6022"


def test_work_that_waits_while_no_step_is_made_is_unhealthy(tiny_chat: Path) -> None:
    with running(tiny_chat, progress_s=2.0) as service:
        wait_for(lambda: httpx.get(f"{service.url}/healthz").status_code == 200)
        thread, _ = stream_in_thread(service, LONG)
        undo = hold(service.engine)
        # On a busy machine it may also say that the engine was not heard of.
        wait_for(lambda: "no step" in str(httpx.get(f"{service.url}/healthz").json()["why"]))
        assert httpx.get(f"{service.url}/readyz").status_code == 503
        assert httpx.get(f"{service.url}/livez").status_code == 200
        undo()
        wait_for(lambda: httpx.get(f"{service.url}/healthz").status_code == 200)
        thread.join(120)
