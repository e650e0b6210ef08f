"""An open breaker over HTTP: who is shed, who is not, and what a balancer sees."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import httpx
import pytest

from ostinato.serve.slo import Breaker
from serve.running import Running, hold, running, wait_for


@pytest.fixture
def opened(tiny_chat: Path) -> Iterator[Running]:
    """A service whose promised times have been missed for ten minutes."""
    with running(tiny_chat) as made:
        breaker = made.services.breaker
        assert breaker is not None
        made.in_loop(lambda: miss(breaker))
        yield made


def miss(breaker: Breaker) -> None:
    now = monotonic()
    for second in range(600):
        at = now - 600 + second
        for _ in range(5):
            breaker.observe(at, ttft_s=9.0)
        breaker.admits(0, at)


def ask(service: Running) -> httpx.Response:
    # A large number is a low priority, of which nothing is let in.
    body = {"prompt": "hello", "max_tokens": 2, "priority": 5}
    return httpx.post(f"{service.url}/v1/completions", json=body, timeout=30)


def test_readiness_shows_the_breaker(opened: Running) -> None:
    answer = httpx.get(f"{opened.url}/readyz")
    assert answer.status_code == 503
    assert "promised times" in answer.json()["why"]
    assert httpx.get(f"{opened.url}/livez").status_code == 200


def test_who_comes_beside_others_is_shed_and_who_comes_alone_is_served(opened: Running) -> None:
    link = opened.services.link
    assert link is not None
    go_on = hold(opened.engine)
    with ThreadPoolExecutor(1) as pool:
        try:
            alone = pool.submit(ask, opened)
            wait_for(lambda: link.open_requests == 1)
            shed = ask(opened)
        finally:
            go_on()
        assert alone.result().status_code == 200
    assert shed.status_code == 429
    assert shed.json()["error"]["code"] == "breaker_open"
    assert int(shed.headers["retry-after"]) >= 1
    wait_for(opened.is_clean)
    for _ in range(5):  # one behind the other is alone each time
        assert ask(opened).status_code == 200
