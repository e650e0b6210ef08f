"""A larger `max_tokens` than the service gives is no error: the answer says that it was cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.running import Running, running

SAID = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def short(tiny_chat: Path) -> Iterator[Running]:
    with running(tiny_chat, max_new_tokens=3) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "hello", "max_tokens": 50}),
        ("/v1/chat/completions", {"messages": SAID, "max_tokens": 50}),
        ("/v1/chat/completions", {"messages": SAID, "max_completion_tokens": 10**6}),
        ("/v1/chat/completions", {"messages": SAID}),
    ],
)
def test_it_ends_at_the_bound_and_says_so(short: Running, path: str, body: dict[str, Any]) -> None:
    answer = httpx.post(f"{short.url}{path}", json={**body, "ignore_eos": True}, timeout=120)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert answer.json()["usage"]["completion_tokens"] == 3
