"""`/openapi.json`, and thousands of requests drawn from it: no 5xx, no hang, nothing left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import hypothesis
import msgspec
import pytest
import schemathesis

from ostinato.serve.description import OPERATIONS, describe
from serve.running import Running, running, wait_for

KEY = "admin-key"
_MOST_S = 10.0
# For each operation. A full run has 10,000 cases in all: OSTINATO_FUZZ_CASES=900.
_CASES = int(os.environ.get("OSTINATO_FUZZ_CASES", "5"))
SCHEMA = schemathesis.openapi.from_dict(describe())
# A trace waits for steps, which nobody makes here: it has tests of its own.
ASKED = "^/(v1|tokenize|detokenize|admin/weights|admin/counts|livez|readyz|healthz)"
_HEALTH = {
    "deadline": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
    "derandomize": True,
    "database": None,
}


@pytest.fixture(scope="module")
def fuzzed(tiny_chat: Path) -> Iterator[Running]:
    """A service whose answers are short, so that thousands of them are soon there."""
    with running(tiny_chat, max_new_tokens=3, max_answers=4, admin_keys=(KEY,)) as made:
        yield made


def ask(case: schemathesis.Case, service: Running) -> None:
    """Ask, and check what must hold of any answer."""
    headers = {"authorization": f"Bearer {KEY}"}
    answer = case.call(base_url=service.url, headers=headers, timeout=_MOST_S)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["message"]
        assert set(error) == {"message", "type", "param", "code"}


@SCHEMA.include(path_regex=ASKED).parametrize()
@hypothesis.settings(max_examples=_CASES, **_HEALTH)
def test_whatever_is_asked_there_is_an_answer(case: schemathesis.Case, fuzzed: Running) -> None:
    ask(case, fuzzed)


def test_nothing_is_left_of_them(fuzzed: Running) -> None:
    wait_for(fuzzed.is_clean)
    assert httpx.get(f"{fuzzed.url}/healthz").status_code == 200


def test_the_description_is_served_and_every_path_in_it_is_there(service: Running) -> None:
    told = httpx.get(f"{service.url}/openapi.json").json()
    assert told == msgspec.json.decode(msgspec.json.encode(describe()))
    for each in OPERATIONS:
        answer = httpx.request(each.method, f"{service.url}{each.path}", json={})
        assert answer.status_code not in (404, 405) or each.parameter
