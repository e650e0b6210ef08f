"""Frames: whatever the pieces a socket gives, the messages come out whole and in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.serve.wire import (
    Admitted,
    Ask,
    Block,
    Cancel,
    Generate,
    Problem,
    Reader,
    Timing,
    ToEngine,
    ToFront,
    frame,
)

PROBLEM = Problem("OST5101", "full", "wait", "full", 2.5)
TO_FRONT = [
    [Admitted(1), Block(1, 0, [5, 6], logprobs=[(-0.5, [(5, -0.5)]), (-1.0, [])])],
    [Block(1, 0, [2], mute=1, finish="stop", timing=Timing(0.1, 0.01, None, 16))],
    [Admitted(2, PROBLEM)],
]
TO_ENGINE = [
    [Generate(1, [1, 2], {"n": 2, "stop": ["x"], "logit_bias": {5: 1.5}}, -3, "salt")],
    [Cancel([1, 2]), Ask(3, "counts", {})],
]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_messages_survive_being_cut_anywhere(sizes: list[int]) -> None:
    data = b"".join(frame(messages) for messages in TO_FRONT)
    reader, got = Reader(ToFront), []
    for size in [*sizes, len(data)]:
        piece, data = data[:size], data[size:]
        got += list(reader.feed(piece))
    assert got == TO_FRONT


def test_what_front_ends_say_survives_too() -> None:
    data = b"".join(frame(messages) for messages in TO_ENGINE)
    assert list(Reader(ToEngine).feed(data)) == TO_ENGINE


def test_another_language_is_told() -> None:
    with pytest.raises(ValueError, match="frame of"):
        list(Reader(ToFront).feed(b"GET / HTTP/1.1\r\n\r\n"))
