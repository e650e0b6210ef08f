"""What users of other servers complain of most, and what holds here instead: a test for each.

Each is made impossible somewhere else in these tests, in more ways than one; here each has its
name, and one thing that would be seen by whoever complained.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

pytest.importorskip("openai", reason="needs openai")

import openai

from ostinato.serve.settings import Settings
from serve.running import Running, hold, running, slow_down, wait_for

PROMPT: dict[str, Any] = {"prompt": "hello", "ignore_eos": True}
SOURCE = Path(__file__).parent.parent.parent / "src" / "ostinato" / "serve"


@pytest.fixture(scope="module")
def one_row(tiny_chat: Path) -> Iterator[Running]:
    """A service that answers one request at a time, slowly, and lets two wait."""
    with running(tiny_chat, engine={"max_batch": 1, "max_waiting": 2}, progress_s=0.3) as made:
        slow_down(made.engine, 0.003)
        yield made


def post(service: Running, **body: Any) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/completions", json={**PROMPT, **body}, timeout=120)


def test_1_unbounded_queue_a_burst_is_refused_and_not_piled_up(one_row: Running) -> None:
    go_on = hold(one_row.engine)
    with ThreadPoolExecutor(12) as pool:
        try:
            burst = [pool.submit(post, one_row, max_tokens=30) for _ in range(12)]
            # One runs and two wait; the others are answered though no step is made.
            wait_for(lambda: sum(one.done() for one in burst) >= 9)
        finally:
            go_on()
        answers = [one.result() for one in burst]
    refused = [one for one in answers if one.status_code == 429]
    assert len(refused) >= 9
    assert all("retry-after" in one.headers for one in refused)
    assert {one.status_code for one in answers} == {200, 429}


def test_2_health_says_200_while_the_engine_hangs_here_it_does_not(one_row: Running) -> None:
    undo = hold(one_row.engine)
    thread = threading.Thread(target=post, args=(one_row,), kwargs={"max_tokens": 1})
    thread.start()
    wait_for(lambda: httpx.get(f"{one_row.url}/healthz").status_code == 503)
    assert httpx.get(f"{one_row.url}/readyz").status_code == 503
    undo()
    thread.join()
    wait_for(lambda: httpx.get(f"{one_row.url}/healthz").status_code == 200)


def test_3_no_graceful_drain_by_default_here_there_is_one_and_it_has_a_bound() -> None:
    """`test_stopping` and `test_processes` see it drain; this is the default."""
    assert Settings().drain_s == 30


def test_4_cancelled_clients_keep_burning_the_gpu_here_they_do_not(one_row: Running) -> None:
    """`test_disconnect` has every endpoint, streamed or not, running or waiting."""
    body = {**PROMPT, "max_tokens": 3000, "stream": True}

    def go_away() -> float:
        with httpx.stream("POST", f"{one_row.url}/v1/completions", json=body) as answer:
            lines = answer.iter_lines()  # held: without it the stream is closed at once
            next(lines)
            assert one_row.engine.counts().scheduler.running == 1
        return wait_for(one_row.is_clean)

    # On a busy machine the best is what counts.
    assert any(go_away() < 0.1 for _ in range(40))


def test_5_the_front_end_is_the_bottleneck_here_it_never_computes_on_the_event_loop(
    service: Running,
) -> None:
    """A prompt of 300 KB is tokenised while somebody else's tokens go on."""
    late: list[float] = []

    async def watch() -> None:
        while len(late) < 60:
            began = monotonic()
            await asyncio.sleep(0.005)
            late.append(monotonic() - began - 0.005)

    watching = asyncio.run_coroutine_threadsafe(watch(), service.loop)
    body = {"prompt": "many words " * 30_000}
    told = httpx.post(f"{service.url}/tokenize", json=body, timeout=120).json()
    assert told["count"] == 330_000
    watching.result(30)
    # Reading the body and writing the answer hold Python's lock for a while; tokenising does not.
    assert sorted(late)[len(late) // 2] < 0.05


def test_6_a_batcher_adds_50_ms_to_the_first_token_here_nothing_waits_for_company(
    service: Running,
) -> None:
    body = {**PROMPT, "max_tokens": 3, "stream": True}
    times: list[float] = []
    with httpx.Client(base_url=service.url) as client:
        while len(times) < 30 or (min(times) >= 0.05 and len(times) < 300):
            began = monotonic()
            with client.stream("POST", "/v1/completions", json=body) as answer:
                lines = answer.iter_lines()
                next(lines)
                times.append(monotonic() - began)
                assert list(lines)
    # The engine's own first token is most of this; on a busy machine the best is what counts.
    assert min(times) < 0.05


def test_7_a_cold_start_records_everything_first_here_it_answers_before(service: Running) -> None:
    """Recordings are made behind; `readyz` alone waits for those made ahead (`test_health`)."""
    assert service.engine.health().is_warm
    assert post(service, max_tokens=1).status_code == 200


def test_8_a_schema_takes_the_engine_down_here_it_costs_its_own_request(service: Running) -> None:
    bomb: dict[str, Any] = {"type": "integer", "multipleOf": 1e-9, "maximum": 1e300}
    for _ in range(12):
        bomb = {"type": "array", "items": {"anyOf": [bomb, bomb]}, "maxItems": 10_000}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": bomb}}
    with ThreadPoolExecutor(2) as pool:
        hurt = pool.submit(post, service, max_tokens=5, response_format=form)
        assert post(service, max_tokens=5).status_code == 200
        assert hurt.result().status_code in (400, 500)
    assert post(service, max_tokens=5).status_code == 200


def test_9_streamed_tool_calls_are_broken_json_here_they_always_join(
    client: openai.OpenAI,
) -> None:
    """`test_openai_tools` and `test_tool_calls` cut them anywhere."""
    tool: Any = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    }
    for seed in range(3):
        chunks = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "x"}],
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=45 + seed,
            seed=seed,
            stream=True,
        )
        text = "".join(
            call.function.arguments or ""
            for chunk in chunks
            for choice in chunk.choices
            for call in choice.delta.tool_calls or ()
            if call.function
        )
        json.loads(text)


def test_10_renamed_metrics_break_dashboards_here_the_list_of_names_is_kept() -> None:
    """`test_metrics_names` fails when a name of the list disappears."""
    names = Path(__file__).with_name("metric_names.txt")
    assert "ostinato_time_to_first_token_seconds" in names.read_text(encoding="utf-8")


def test_11_prometheus_multiprocess_mode_here_it_is_not_used(service: Running) -> None:
    """No files of numbers for a network drive to lose; `test_peers` adds processes up."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not {"MultiProcessCollector", "PROMETHEUS_MULTIPROC_DIR"} & words
    text = httpx.get(f"{service.url}/metrics").text
    assert re.search(r"^process_resident_memory_bytes\{", text, re.MULTILINE)


def test_12_answers_differ_at_temperature_0_here_company_changes_nothing(service: Running) -> None:
    def answer() -> str:
        got = post(service, max_tokens=40, temperature=0)
        return str(got.json()["choices"][0]["text"])

    alone = answer()
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(post, service, max_tokens=60, prompt="x" * k) for k in range(1, 5)]
        together = [pool.submit(answer) for _ in range(4)]
        assert {one.result() for one in together} == {alone}
        for one in others:
            assert one.result().status_code == 200
