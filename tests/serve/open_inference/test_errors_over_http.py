"""Every error under /v2 is written as the Open Inference Protocol writes it, wherever it arises."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

pytest.importorskip("tritonclient", reason="needs tritonclient")

from tritonclient.utils import InferenceServerException

from ostinato.serve import open_inference
from serve.open_inference.fronts import Front, front, of_callable
from serve.open_inference.triton_http import http_client

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
STRANGE = ("/v2/nope", "/v2/models", "/v2/models/", "/v2/models/scaled/nope", "/v2//",
           "/v2/repository/index", "/v2/health", "/v2/models/scaled/versions/1/nope")  # fmt: skip
KEY = {"authorization": "Bearer key"}


@pytest.fixture(scope="module")
def served() -> Iterator[Front]:
    with front(
        of_callable("scaled", api_keys=("key",), max_body_bytes=1000, body_s=0.3, header_s=5.0,
                    max_header_bytes=2000)
    ) as found:  # fmt: skip
        yield found


def check(status: int, body: bytes, wanted: int | None = None) -> None:
    read = json.loads(body)
    assert list(read) == ["error"], body
    assert isinstance(read["error"], str), body
    assert read["error"]
    assert status >= 400
    assert wanted in (None, status)


def exchange(served: Front, sent: bytes) -> tuple[int, bytes]:
    """What comes back for raw bytes, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(sent)
        data = b""
        while piece := connection.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def paths(served: Front) -> list[str]:
    known = [getattr(route, "path", "") for route in open_inference.routes(served.services)]
    return [path.format(model="scaled", version="1") for path in known]


def test_wrong_methods_and_unknown_paths(served: Front) -> None:
    seen = set()
    with httpx.Client(base_url=served.url, headers=KEY, timeout=60) as client:
        for path in {*paths(served), *STRANGE}:
            for method in METHODS:
                answer = client.request(method, path)
                if answer.status_code >= 400:
                    check(answer.status_code, answer.content)
                    seen.add(answer.status_code)
                if answer.status_code == 405:
                    assert answer.headers["allow"]
    assert seen == {400, 404, 405, 422}


def test_a_client_without_a_key_is_told(served: Front) -> None:
    for path in {*paths(served), *STRANGE} - {"/v2/health/live", "/v2/health/ready"}:
        answer = httpx.post(f"{served.url}{path}", timeout=60)
        check(answer.status_code, answer.content, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    with http_client(served.port) as client, pytest.raises(InferenceServerException, match="key"):
        client.get_server_metadata()


def test_a_body_that_is_too_large_or_never_whole(served: Front) -> None:
    url = f"{served.url}/v2/models/scaled/infer"
    answer = httpx.post(url, content=b"x" * 2000, headers=KEY, timeout=60)
    check(answer.status_code, answer.content, 413)
    head = b"POST /v2/models/scaled/infer HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key\r\n"
    check(*exchange(served, head + b"content-length: 9\r\n\r\n{"), 408)


def test_a_head_that_is_no_head_or_too_large_or_slow(served: Front) -> None:
    check(*exchange(served, b"GET /v2 HTTP/1.1\r\nx: " + b"a" * 3000 + b"\r\n\r\n"), 431)
    check(*exchange(served, b"GET /v2 HTTP/1.1\r\ncontent-length: abc\r\n\r\n"), 400)
    check(*exchange(served, b"no request\r\n\r\n"), 400)
    check(*exchange(served, b""), 408)
    status, body = exchange(served, b"GET /v1/models HTTP/1.1\r\ncontent-length: abc\r\n\r\n")
    assert (status, json.loads(body)["error"]["type"]) == (400, "invalid_request_error")


def test_what_nobody_foresaw_and_a_server_that_stops(
    served: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(self: object) -> bool:
        raise ZeroDivisionError

    services = served.services
    with monkeypatch.context() as patch:
        patch.setattr(type(services.callable), "is_ready", property(breaks))
        answer = httpx.get(f"{served.url}/v2/models/scaled/ready", headers=KEY, timeout=60)
        check(answer.status_code, answer.content, 500)
    monkeypatch.setattr(services.drain, "is_draining", True)
    answer = httpx.get(f"{served.url}/v2", headers=KEY, timeout=60)
    check(answer.status_code, answer.content, 503)


def test_one_connection_too_many() -> None:
    with (
        front(of_callable("scaled", max_connections=1)) as one,
        socket.create_connection(("127.0.0.1", one.port), timeout=60) as first,
    ):
        first.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert first.recv(65536)
        check(*exchange(one, b""), 429)


def test_the_protocols_own_client_is_told_of_a_path_that_is_not_there(served: Front) -> None:
    with (
        http_client(served.port) as client,
        pytest.raises(InferenceServerException, match="nothing at /v2/repository"),
    ):
        client.get_model_repository_index(headers=KEY)
