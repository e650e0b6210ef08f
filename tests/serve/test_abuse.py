"""Requests that are meant to hurt: a clear refusal each, and the next client is answered."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import httpx
import pytest

from serve.running import Running, running, wait_for

GOOD = {"prompt": "hello", "max_tokens": 2}


@pytest.fixture(scope="module")
def small(tiny_chat: Path) -> Iterator[Running]:
    """A service with little patience."""
    with running(
        tiny_chat,
        header_s=2.0,
        body_s=2.0,
        max_header_bytes=4096,
        max_connections=20,
        keep_alive_s=1,
        unread_s=1.0,
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def _still_answers(small: Running) -> Iterator[None]:
    yield
    answer = httpx.post(f"{small.url}/v1/completions", json=GOOD, timeout=120)
    assert answer.status_code == 200
    wait_for(small.is_clean)


def connect(service: Running) -> socket.socket:
    return socket.create_connection((service.host, service.port), timeout=120)


def open_connections(service: Running) -> int:
    return service.in_loop(lambda: len(service.server.server_state.connections))


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str]]:
    """The status and the error of the answer; the connection must be closed behind it."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def test_slowloris_is_shown_the_door(small: Running) -> None:
    began = monotonic()
    with connect(small) as slow:
        for letter in b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-A: ":
            slow.sendall(bytes([letter]))
            if select.select([slow], [], [], 0.02)[0]:
                break
        status, error = answer_of(slow)
    assert status == 408
    assert "head" in error["message"]
    assert monotonic() - began < 60


def test_a_connection_that_says_nothing_is_closed(small: Running) -> None:
    began = monotonic()
    with connect(small) as silent:
        assert answer_of(silent)[0] == 408
    assert monotonic() - began < 60


def test_a_body_that_never_comes_is_not_waited_for(small: Running) -> None:
    with connect(small) as slow:
        slow.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"prompt":'
        )
        status, error = answer_of(slow)
    assert status == 408
    assert "body" in error["message"]


def test_a_hundred_megabytes_are_refused_unread(small: Running) -> None:
    with connect(small) as large:
        large.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 104857600\r\n\r\n"
        )
        status, error = answer_of(large)
    assert status == 413
    assert error["code"] == "body_too_large"


def test_a_client_that_sends_a_little_too_much_before_it_reads_is_told_why(small: Running) -> None:
    request = urllib.request.Request(
        f"{small.url}/v1/completions",
        data=b"x" * 9_000_000,
        headers={"content-type": "application/json"},
    )
    for _ in range(5):  # without the reading it depends on who is faster
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=120)
        assert refused.value.code == 413
        refused.value.close()


def test_a_hundred_megabytes_of_unknown_length_are_refused_on_the_way(small: Running) -> None:
    piece = b"x" * 65536
    chunk = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    sent = 0
    with connect(small) as large:
        large.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        try:
            while sent < 100 << 20:
                large.sendall(chunk)
                sent += len(chunk)
        except OSError:  # it has hung up on us
            pass
    assert sent < 64 << 20


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "\\ud800"}',
        b"\x00\x01\x02",
        b"",
        b"[]",
        b'"text"',
        b'{"prompt": "a"',
        b'{"prompt": NaN}',
    ],
)
def test_what_is_no_text_or_no_json_is_refused(small: Running, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{small.url}/v1/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_json_that_nests_a_million_deep_is_refused(small: Running, opening: bytes) -> None:
    body = b'{"chat_template_kwargs": {"a": ' + opening * 1_000_000
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{small.url}/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert "nests too deeply" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"hotness": ', "is no JSON: it ends in the middle"),
        (b'{"prompt": 3, "hotness": 1', "is no JSON: it ends in the middle"),
        (b'{"hotness": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nests too deeply"),
        (b'{"hotness": 1}', "there is no field 'hotness'"),
        (b'{"hotness": 1e999}', "there is no field 'hotness'"),
    ],
    ids=["cut off", "cut off later", "deep", "whole", "number out of range"],
)
def test_that_a_body_is_no_json_goes_before_what_its_fields_say(
    small: Running, body: bytes, said: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{small.url}/v1/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_a_flood_of_headers_is_refused(small: Running) -> None:
    flood = b"".join(b"X-%d: %s\r\n" % (at, b"y" * 50) for at in range(1000))
    with connect(small) as flooding:
        flooding.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + flood + b"\r\n")
        status, _ = answer_of(flooding)
    assert status == 431


def test_one_endless_header_is_refused(small: Running) -> None:
    with connect(small) as flooding:
        flooding.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-A: ")
        flooding.sendall(b"y" * 8192)
        status, _ = answer_of(flooding)
    assert status == 431


def test_what_is_no_http_is_refused(small: Running) -> None:
    with connect(small) as strange:
        strange.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        status, error = answer_of(strange)
    assert status == 400
    assert "no request of HTTP/1.1; send one" in error["message"]


def test_connections_beyond_the_bound_are_told_to_come_back(small: Running) -> None:
    held = [connect(small) for _ in range(20)]
    try:
        wait_for(lambda: open_connections(small) == 20)
        with connect(small) as beyond:
            data = beyond.recv(65536)
        assert data.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1" in data
    finally:
        for each in held:
            each.close()
    wait_for(lambda: open_connections(small) == 0)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
def test_an_answer_that_nobody_reads_is_not_kept_for_ever(small: Running) -> None:
    """More is asked for than the system's buffers hold, and not a byte of it is read."""
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((small.host, small.port))
        deaf.settimeout(120)
        with contextlib.suppress(ConnectionError):  # it ends in the middle of our asking
            for _ in range(1000):
                deaf.sendall(asked)
        wait_for(lambda: open_connections(small) == 0, 120)


def test_two_requests_in_one_packet_are_both_answered(small: Running) -> None:
    with connect(small) as both:
        asked = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
        both.sendall(asked + asked)
        both.settimeout(120)
        data = b""
        while data.count(b"HTTP/1.1 200") < 2:
            data += both.recv(65536)


def test_a_large_body_right_behind_its_head_is_no_large_head(small: Running) -> None:
    body = {"prompt": "x" * 3500, "max_tokens": 1, "user": "y" * 60_000}
    assert httpx.post(f"{small.url}/v1/completions", json=body, timeout=120).status_code == 200
