"""An open breaker over HTTP: who is shed, who is not, and what a balancer sees."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from ostinato.serve.desk import Desk, Living, News
from ostinato.serve.slo import Breaker
from ostinato.serve.wire import Generate
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
    return httpx.post(f"{service.url}/v1/completions", json=body, timeout=120)


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


class Elsewhere:
    """What another front end is to the engine."""

    name = "elsewhere"

    def __init__(self) -> None:
        self.living: dict[int, Living] = {}

    def put(self, news: News) -> None:
        pass


def generate(key: int, *, is_lone: bool = False, **options: object) -> Generate:
    return Generate(key, [1, 2, 3], {"max_tokens": 2, **options}, is_lone=is_lone)


def test_one_request_is_alone_in_the_service_whichever_front_end_it_came_by(
    opened: Running,
) -> None:
    link: Any = opened.services.link
    desk, other = link._desk, Elsewhere()
    go_on = hold(opened.engine)
    try:
        assert desk.submit(generate(1), other).problem is None
        shed = ask(opened)
    finally:
        go_on()
    assert shed.status_code == 429
    assert shed.json()["error"]["code"] == "breaker_open"
    assert int(shed.headers["retry-after"]) >= 1
    wait_for(lambda: not other.living)
    assert ask(opened).status_code == 200


def test_the_engine_lets_a_lone_request_in_when_all_others_are_over(opened: Running) -> None:
    link: Any = opened.services.link
    desk: Desk = link._desk
    one, other = Elsewhere(), Elsewhere()
    go_on = hold(opened.engine)
    try:
        assert desk.submit(generate(1, is_lone=True), one).problem is None
        refused = desk.submit(generate(1, is_lone=True), other).problem
        assert refused is not None
        assert refused.code == "OST6024"
        assert not other.living
        assert desk.submit(generate(2), other).problem is None  # it did not ask to be alone
        wrong = desk.submit(generate(3, temperature=-1), other).problem
        assert wrong is not None
        assert wrong.code == "OST5001"
        desk.cancel([1, 1], one)
        desk.cancel([1], one)
        assert desk.submit(generate(2, is_lone=True), one).problem is not None
        desk.leave(other)
        assert desk.submit(generate(3, is_lone=True, n=2), one).problem is None
    finally:
        go_on()
    wait_for(lambda: not one.living)  # both of its answers have ended
    assert desk.submit(generate(4, is_lone=True), one).problem is None
    wait_for(lambda: not one.living)
    wait_for(opened.is_clean)
