"""A server's reply taken apart, however its bytes arrive."""

from __future__ import annotations

import pytest

from ostinato.bench.serve.replies import BadReply, EventCutter, ReplyReader

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nabcde\r\n1A;x=y\r\n" + b"f" * 26 + b"\r\n0\r\nTrailer: 1\r\n\r\n"
)
SIZED = b"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nfull"


def read(data: bytes, step: int) -> tuple[ReplyReader, bytes]:
    reader, body = ReplyReader(), b""
    for start in range(0, len(data), step):
        body += reader.feed(data[start : start + step])
    return reader, body


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_a_chunked_reply_is_joined(step: int) -> None:
    reader, body = read(CHUNKED, step)
    assert (reader.status, body) == (200, b"abcde" + b"f" * 26)
    assert reader.is_done
    assert reader.is_kept_alive


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_sized_reply_ends_after_its_length(step: int) -> None:
    reader, body = read(SIZED, step)
    assert (reader.status, body, reader.headers["retry-after"]) == (429, b"full", "3")
    assert reader.is_done


def test_a_reply_is_not_done_before_its_end() -> None:
    for data in (CHUNKED, SIZED):
        reader, _ = read(data[:-1], 1000)
        assert not reader.is_done
        reader.close()
        assert not reader.is_done


def test_a_reply_without_a_length_ends_with_its_connection() -> None:
    reader, body = read(b"HTTP/1.1 200 OK\r\n\r\nall of it", 1000)
    assert not reader.is_done
    reader.close()
    assert (reader.is_done, body) == (True, b"all of it")


def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    reader, _ = read(head, 1000)
    assert (reader.is_done, reader.is_kept_alive) == (True, False)


def test_what_goes_before_the_reply_is_passed_over() -> None:
    reader, body = read(b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED, 1000)
    assert (reader.status, body) == (429, b"full")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_what_is_no_reply_is_told(data: bytes) -> None:
    with pytest.raises(BadReply):
        read(data, 1000)


@pytest.mark.parametrize("step", [1, 4, 1000])
def test_events_are_cut_at_blank_lines_and_comments_are_none(step: int) -> None:
    body = (
        b'data: {"a":1}\n\n: still here\n\ndata: two\r\n\r\nevent: x\ndata: a\ndata: b\n\ndata: ha'
    )
    cutter, found = EventCutter(), []
    for start in range(0, len(body), step):
        found += cutter.feed(body[start : start + step])
    assert found == [b'{"a":1}', b"two", b"a\nb"]
