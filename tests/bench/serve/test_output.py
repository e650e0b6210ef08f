"""A line that a process writes for its parent arrives whole, also where output has no buffer."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import msgspec
import pytest

from ostinato.bench.serve import client
from ostinato.bench.serve.client import Share
from ostinato.bench.serve.output import whole


class Sipping(io.RawIOBase):
    """Takes two bytes of whatever it is given, as a pipe may that is written to bare."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        sip = bytes(memoryview(data))[:2]  # type: ignore[arg-type]
        self.taken += sip
        return len(sip)


def test_a_bare_output_gets_the_rest_of_a_line() -> None:
    bare = Sipping()
    output = whole(bare)  # type: ignore[arg-type]
    output.write(b"x" * 100_000 + b"\n")
    output.flush()
    assert bare.taken == b"x" * 100_000 + b"\n"


def test_an_output_with_a_buffer_is_left_as_it_is() -> None:
    buffered = io.BytesIO()
    assert whole(buffered) is buffered


def test_a_client_answers_in_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Share("127.0.0.1", 1, "/", {}, [], 0.0)
    lines = io.BytesIO(2 * (msgspec.json.encode(nothing) + b"\n"))
    bare = Sipping()
    monkeypatch.setattr(client, "run_share", lambda share: [])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=lines))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=bare))
    client.main()
    assert bare.taken == b"[]\n[]\n"
