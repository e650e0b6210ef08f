"""`/admin/*`: weights are changed and changed back under way, and steps recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.running import Running, running, slow_down, wait_for

ASKED: dict[str, Any] = {
    "prompt": "hello",
    "max_tokens": 12,
    "temperature": 0,
    "ignore_eos": True,
}


@pytest.fixture
def made(tiny_chat: Path) -> Iterator[Running]:
    with running(tiny_chat, admin_keys=("k",)) as service:
        yield service


def admin(service: Running, path: str, body: dict[str, Any]) -> httpx.Response:
    headers = {"authorization": "Bearer k"}
    return httpx.post(f"{service.url}/admin/{path}", json=body, headers=headers, timeout=120)


def said(service: Running) -> str:
    answer = httpx.post(f"{service.url}/v1/completions", json=ASKED, timeout=120)
    return str(answer.json()["choices"][0]["text"])


def version(service: Running) -> str:
    return str(httpx.get(f"{service.url}/v1/models").json()["data"][0]["version"])


def test_new_weights_answer_and_one_call_brings_the_old_ones_back(
    made: Running, other_weights: Path
) -> None:
    before = said(made)
    changed = admin(made, "weights", {"folder": str(other_weights), "version": "tuned"})
    assert changed.json() == {"version": "tuned", "previous": "initial"}
    wait_for(lambda: version(made) == "tuned")
    assert said(made) != before
    back = admin(made, "weights", {"rollback": True})
    assert back.json() == {"version": "initial", "previous": "tuned"}
    wait_for(lambda: version(made) == "initial")
    assert said(made) == before


def test_a_change_drops_no_request(made: Running, other_weights: Path) -> None:
    slow_down(made.engine, 0.005)
    with ThreadPoolExecutor(3) as pool:
        long = {**ASKED, "max_tokens": 80}
        url = f"{made.url}/v1/completions"
        asked = [pool.submit(httpx.post, url, json=long, timeout=120) for _ in range(3)]
        wait_for(lambda: made.engine.counts().scheduler.running == 3)
        assert admin(made, "weights", {"folder": str(other_weights), "version": "tuned"}).is_success
        usages = [one.result().json()["usage"]["completion_tokens"] for one in asked]
    assert usages == [80, 80, 80]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"folder": "/nowhere", "version": "x"}, "nowhere"),
        ({"version": "x"}, "folder"),
        ({"rollback": True}, "no weights before"),
        ({"rollback": True, "version": "x"}, "leave out"),
        ({"folder": "/nowhere", "version": "initial"}, "label"),
        ({"folder": "/nowhere", "version": "x", "in_flight": "maybe"}, "maybe"),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_made_changes_nothing(
    made: Running, body: dict[str, Any], words: str
) -> None:
    answer = admin(made, "weights", body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert version(made) == "initial"


def test_steps_are_recorded_to_a_trace(made: Running) -> None:
    slow_down(made.engine, 0.002)
    with ThreadPoolExecutor(1) as pool:
        long = {**ASKED, "max_tokens": 300}
        url = f"{made.url}/v1/completions"
        asked = pool.submit(httpx.post, url, json=long, timeout=120)
        wait_for(lambda: made.engine.counts().scheduler.running == 1)
        told = admin(made, "profile", {"steps": 5}).json()
        assert asked.result().status_code == 200
    assert told["steps"] >= 5
    file = Path(told["file"])
    trace = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    names = {event.get("name") for event in trace["traceEvents"]}
    assert any(str(name).startswith("aten::") for name in names)


@pytest.mark.parametrize("body", [{"steps": 0}, {"steps": 10**6}, {"steps": 5, "timeout_s": 0}])
def test_a_trace_of_no_sense_is_refused(made: Running, body: dict[str, Any]) -> None:
    assert admin(made, "profile", body).status_code == 400


def test_two_traces_at_once_are_one_too_many(made: Running) -> None:
    with ThreadPoolExecutor(2) as pool:
        body = {"steps": 5, "timeout_s": 2.0}
        asked = [pool.submit(admin, made, "profile", body) for _ in range(2)]
        done, refused = sorted((one.result() for one in asked), key=lambda one: one.status_code)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "OST6014"
    assert done.json()["steps"] == 0  # nobody asked for anything meanwhile
    Path(done.json()["file"]).unlink()
