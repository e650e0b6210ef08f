"""A client that goes away frees its row and pages at once, whatever it was waiting for."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.running import Running, running, slow_down, wait_for

MOST_S = 0.1


@pytest.fixture(scope="module")
def slow(tiny_chat: Path) -> Iterator[Running]:
    """A service whose steps take 10 ms, so that no answer ends by itself."""
    with running(tiny_chat, engine={"max_batch": 2}) as made:
        slow_down(made.engine, 0.01)
        yield made


def ask(service: Running, path: str, body: dict[str, Any]) -> socket.socket:
    data = json.dumps(body).encode()
    made = socket.create_connection((service.host, service.port), timeout=120)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    made.sendall(head.encode() + data)
    return made


def best_of_many(attempt: Callable[[], float]) -> float:
    """The shortest of up to 40: on a busy machine the test itself is late most times."""
    shortest = attempt()
    for _ in range(40):
        if shortest < MOST_S:
            break
        shortest = min(shortest, attempt())
    return shortest


LONG: dict[str, Any] = {"max_tokens": 2000, "ignore_eos": True}
PROMPT: dict[str, Any] = {"prompt": "hello", **LONG}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], **LONG}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {**PROMPT, "stream": True}),
        ("/v1/completions", PROMPT),
        ("/v1/completions", {**PROMPT, "n": 2, "stream": True}),
        ("/v1/completions", {**PROMPT, "prompt": ["a", "b"]}),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", {"input": "hello", "max_output_tokens": 2000, "stream": True}),
    ],
    ids=str,
)
def test_row_and_pages_are_free_within_100_ms(
    slow: Running, path: str, body: dict[str, Any]
) -> None:
    def go_away() -> float:
        connection = ask(slow, path, body)
        wait_for(lambda: slow.engine.counts().scheduler.running > 0)
        if body.get("stream"):
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.close()
        return wait_for(slow.is_clean)

    assert best_of_many(go_away) < MOST_S


def test_who_waits_for_a_row_leaves_the_queue(slow: Running) -> None:
    first = ask(slow, "/v1/completions", {**PROMPT, "n": 2, "stream": True})
    wait_for(lambda: slow.engine.counts().scheduler.running == 2)

    def go_away() -> float:
        waiting = ask(slow, "/v1/completions", {**PROMPT, "stream": True})
        wait_for(lambda: slow.engine.counts().scheduler.waiting == 1)
        waiting.close()
        return wait_for(lambda: slow.engine.counts().scheduler.waiting == 0)

    assert best_of_many(go_away) < MOST_S
    first.close()
    wait_for(slow.is_clean)


def test_the_abort_is_counted_by_its_reason(slow: Running) -> None:
    def aborted() -> str:
        name = 'ostinato_requests_aborted_total{reason="disconnected"}'
        text = slow.in_loop(slow.services.metrics.text)
        return next(line for line in text.splitlines() if line.startswith(name))

    before = aborted()
    connection = ask(slow, "/v1/completions", {**PROMPT, "stream": True})
    wait_for(lambda: slow.engine.counts().scheduler.running > 0)
    connection.close()
    wait_for(lambda: aborted() != before)
