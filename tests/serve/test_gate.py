"""What stands before every route: keys, ids, sizes, and a log that tells nobody's words."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("openai", reason="needs openai")

import openai

from ostinato.serve import logs
from serve.running import Running, running, wait_for

BODY: dict[str, Any] = {"prompt": "hello", "max_tokens": 2}


@pytest.fixture(scope="module")
def locked(tiny_chat: Path) -> Iterator[Running]:
    """A service behind keys, for one web page, with small limits."""
    with running(
        tiny_chat,
        api_keys=("key-one", "key-two"),
        admin_keys=("admin-key",),
        cors_origins=("https://page.example",),
        max_body_bytes=2000,
        body_s=0.3,
    ) as made:
        yield made


@pytest.fixture
def http(locked: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=locked.url, timeout=120) as made:
        yield made


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("key", ["key-one", "key-two"])
def test_either_key_opens(http: httpx.Client, key: str) -> None:
    assert http.post("/v1/completions", json=BODY, headers=bearer(key)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("key-on"),
        bearer("key-one2"),
        *({"authorization": it} for it in ("Bearer", "key-one")),
    ],
)
def test_without_a_key_nothing_is_answered(http: httpx.Client, headers: dict[str, str]) -> None:
    answer = http.post("/v1/completions", json=BODY, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "invalid_api_key"


def test_the_official_client_sees_an_authentication_error(locked: Running) -> None:
    with (
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics"])
def test_machines_that_look_after_it_need_no_key(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 200


def test_the_admin_needs_a_key_of_his_own(http: httpx.Client) -> None:
    assert http.get("/admin/counts", headers=bearer("key-one")).status_code == 401
    assert http.get("/admin/counts", headers=bearer("admin-key")).status_code == 200
    assert http.post("/v1/completions", json=BODY, headers=bearer("admin-key")).status_code == 401


@pytest.mark.parametrize("headers", [{}, bearer("admin-key")])
def test_without_an_admin_key_nobody_is_admin(tiny_chat: Path, headers: dict[str, str]) -> None:
    with running(tiny_chat) as made:
        answer = httpx.get(f"{made.url}/admin/counts", headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        "authorization,content-type,x-stainless-os",
        "X-Stainless-Arch, X-Stainless-Lang, X-Stainless-OS, X-Stainless-Retry-Count",
        "openai-organization, openai-project, openai-beta",
        "idempotency-key, traceparent, tracestate",
    ],
)
def test_a_page_may_send_the_headers_that_its_client_sends(
    http: httpx.Client, headers: str
) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": headers}
    ours = http.options("/v1/completions", headers={"origin": "https://page.example", **asked})
    assert ours.status_code == 200
    allowed = ours.headers["access-control-allow-headers"].lower().split(",")
    wanted = {one.strip() for one in headers.lower().split(",")}
    assert wanted <= {one.strip() for one in allowed}
    other = http.options("/v1/completions", headers={"origin": "https://evil.example", **asked})
    assert other.status_code == 400
    assert "access-control-allow-origin" not in other.headers


def test_a_page_of_the_allowed_origin_may_call_and_another_not(http: httpx.Client) -> None:
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    ours = http.options("/v1/completions", headers={"origin": "https://page.example", **asked})
    assert ours.status_code == 200
    assert ours.headers["access-control-allow-origin"] == "https://page.example"
    other = http.options("/v1/completions", headers={"origin": "https://evil.example", **asked})
    assert "access-control-allow-origin" not in other.headers
    refused = http.post("/v1/completions", json=BODY, headers={"origin": "https://page.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://page.example"


def test_a_request_keeps_its_id_or_gets_one(http: httpx.Client) -> None:
    given = http.get("/v1/models", headers={"x-request-id": "abc-1", **bearer("key-one")})
    assert given.headers["x-request-id"] == "abc-1"
    strange = http.get("/v1/models", headers={"x-request-id": "a b\tc", **bearer("key-one")})
    assert len(strange.headers["x-request-id"]) == 32


def test_a_body_beyond_the_bound_is_refused_by_its_announced_length(http: httpx.Client) -> None:
    body = {"prompt": "x" * 3000}
    answer = http.post("/v1/completions", json=body, headers=bearer("key-one"))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


def test_a_body_of_unknown_length_is_refused_when_it_grows_too_large(http: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * 500

    headers = {"content-type": "application/json", **bearer("key-one")}
    answer = http.post("/v1/completions", content=pieces(), headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("path", "method", "status", "allow", "words"),
    [
        ("/nowhere", "GET", 404, None, "there is nothing at /nowhere; /openapi.json lists"),
        ("/v1/completions", "GET", 405, "POST", "not asked like that; use POST"),
        ("/v1/models", "POST", 405, "GET", "not asked like that; use "),
        ("/" + "x" * 3000, "GET", 404, None, "xxx...; "),
    ],
)
def test_what_is_not_there_is_told_in_openais_shape_and_with_what_is(
    http: httpx.Client, path: str, method: str, status: int, allow: str | None, words: str
) -> None:
    answer = http.request(method, path, headers=bearer("key-one"))
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert (allow or "") in answer.headers.get("allow", "")
    assert len(answer.text) < 400


def test_a_packed_body_is_told_to_be_sent_plain(http: httpx.Client) -> None:
    headers = {"content-encoding": "gzip", "content-type": "application/json", **bearer("key-one")}
    answer = http.post("/v1/completions", content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 415
    assert "send it as plain JSON" in answer.json()["error"]["message"]


def test_a_form_is_no_json(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", data={"prompt": "x"}, headers=bearer("key-one"))
    assert answer.status_code == 415


def test_the_log_names_the_request_and_not_what_it_said(
    http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        headers = {"x-request-id": "logged-1", **bearer("key-one")}
        secret = {"prompt": "my secret", "max_tokens": 1}
        http.post("/v1/completions", json=secret, headers=headers)
        http.get("/guess/my-secret-path", headers=headers)
        # A line is written when the answer has gone.
        wait_for(lambda: sum(r.name == "ostinato.serve.access" for r in caplog.records) == 2)
    formatter = logs.JsonLines("front-0")
    # The test's own client logs where it goes.
    records = [record for record in caplog.records if not record.name.startswith("http")]
    lines = [formatter.format(record) for record in records]
    logged = [json.loads(line) for line in lines if "logged-1" in line]
    assert [(one["path"], one["status"]) for one in logged] == [
        ("/v1/completions", 200),
        ("unknown", 404),
    ]
    assert logged[0]["ms"] > 0
    assert not [line for line in lines if "secret" in line or "key-one" in line]


def access(caplog: pytest.LogCaptureFixture, count: int) -> list[tuple[str, int]]:
    """Path and status of so many lines of the access log, once they are there."""

    def lines() -> list[Any]:
        return [each for each in caplog.records if each.name == "ostinato.serve.access"]

    wait_for(lambda: len(lines()) >= count)
    return [(each.path, each.status) for each in lines()]


def test_what_is_refused_before_its_route_is_known_is_logged_by_its_path(
    http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        http.post("/v1/completions", json=BODY)
        http.get("/guess/my-secret-path")
        logged = access(caplog, 2)
    assert logged == [("/v1/completions", 401), ("unknown", 401)]


def test_a_client_who_leaves_in_the_middle_of_its_body_is_no_failure(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO),
        socket.create_connection((service.host, service.port), timeout=120) as leaving,
    ):
        leaving.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"prompt":'
        )
        leaving.shutdown(socket.SHUT_RDWR)
        leaving.close()
        logged = access(caplog, 1)
    assert logged == [("/v1/completions", 499)]
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_half_a_character_is_logged_too() -> None:
    record = logging.LogRecord("a", 40, "f", 1, "failed: %s", ("boo \ud800",), None)
    assert json.loads(logs.JsonLines("engine").format(record))["message"] == "failed: boo \ud800"


def test_an_exception_is_one_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("a", 40, "f", 1, "failed: %s", ("x",), sys.exc_info())
    line = logs.JsonLines("engine").format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert said["message"] == "failed: x"
    assert said["process"] == "engine"
    assert "ValueError" in said["exception"]
