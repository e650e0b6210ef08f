"""What the front ends and the engine say to each other, and how it lies in a socket's bytes.

A frame is its length in four bytes and one list of messages in msgpack, so that a round of the
engine costs one write however many requests it brings tokens for. Nothing here knows torch or HTTP.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

_LENGTH = struct.Struct("!I")
MOST_BYTES = 256 * 1024 * 1024
"""Of one frame; a longer one means that the two ends no longer understand each other."""


class Problem(msgspec.Struct, array_like=True, frozen=True):
    """An error on its way to a client.

    Attributes:
        code: As in `OstinatoError`.
        message: The fact.
        remedy: What to do next.
        kind: "usage" (the request is wrong), "full" (come back later), "busy" (something else is
            in its way), "down" (this service cannot answer now) or "internal".
        retry_s: After how long it is worth trying again; None where that is not known.
    """

    code: str
    message: str
    remedy: str
    kind: str
    retry_s: float | None = None


class Timing(msgspec.Struct, array_like=True, frozen=True):
    """How an answer went in the engine; as `llm.Metrics`."""

    ttft_s: float | None
    tpot_s: float | None
    queued_s: float | None
    cached_tokens: int


class Generate(msgspec.Struct, array_like=True, tag="g"):
    """Ask for answers to one prompt.

    Attributes:
        key: Names the request on this link.
        prompt_ids: The prompt's tokens.
        options: As `SamplingParams.read` takes them.
        priority: The smaller, the sooner.
        salt: Cached prompts are shared only with requests of the same salt.
        is_lone: Let it in only while no other request lives, whoever asked for that.
    """

    key: int
    prompt_ids: list[int]
    options: dict[str, Any]
    priority: int = 0
    salt: str = ""
    is_lone: bool = False


class Cancel(msgspec.Struct, array_like=True, tag="c"):
    """Nobody waits for these any more."""

    keys: list[int]


class Ask(msgspec.Struct, array_like=True, tag="a"):
    """Ask the engine about itself, or to do something.

    Attributes:
        name: A method of `desk.Desk` that may be asked for.
        values: Its arguments.
    """

    key: int
    name: str
    values: dict[str, Any]


class Hello(msgspec.Struct, array_like=True, tag="h"):
    """The engine introduces itself, and again when its weights change.

    Attributes:
        name: The model's own name.
        folder: Where its tokenizer lies; None if it has none.
        version: Label of its weights.
        created: Since when they are in use, in seconds since 1970.
        most_logprobs: Likeliest tokens that may be asked for.
    """

    name: str
    folder: str | None
    version: str
    created: int
    vocabulary: int
    max_model_len: int
    most_logprobs: int


class Admitted(msgspec.Struct, array_like=True, tag="y"):
    """A request was let in, or not."""

    key: int
    problem: Problem | None = None


class Block(msgspec.Struct, array_like=True, tag="b"):
    """Tokens of one answer.

    Attributes:
        index: Which of the request's answers.
        mute: How many of the last tokens are no part of its text: a stop token.
        logprobs: For each token its own and the likeliest ones with theirs, if asked for.
        finish: Why it ended; None while it runs.
    """

    key: int
    index: int
    token_ids: list[int]
    mute: int = 0
    logprobs: list[tuple[float, list[tuple[int, float]]]] | None = None
    finish: str | None = None
    problem: Problem | None = None
    timing: Timing | None = None


class Pulse(msgspec.Struct, array_like=True, tag="p"):
    """How the engine stands; comes several times a second.

    Attributes:
        why: Why it is not healthy; None if it is.
        idle_s: Since it last finished a step or found nothing to do.
        is_living: Whether requests live.
        is_warm: Whether all steps that are recorded ahead have been.
    """

    why: str | None
    idle_s: float
    is_living: bool
    is_warm: bool
    waiting: int
    waiting_tokens: int
    running: int


class Told(msgspec.Struct, array_like=True, tag="t"):
    """The answer to `Ask`."""

    key: int
    value: Any = None
    problem: Problem | None = None


ToEngine = Generate | Cancel | Ask
ToFront = Hello | Admitted | Block | Pulse | Told


class Reader:
    """Cuts what a socket gives into frames, and those into messages of one kind.

    Raises:
        ValueError: The other end does not speak this language.
    """

    def __init__(self, kinds: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[kinds])
        self._left = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Take bytes; yield the messages of each frame that is now whole."""
        self._left += data
        start = 0
        while len(self._left) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._left, start)
            if length > MOST_BYTES:
                raise ValueError(f"a frame of {length} bytes is announced")
            end = start + _LENGTH.size + length
            if len(self._left) < end:
                break
            frame = bytes(memoryview(self._left)[start + _LENGTH.size : end])
            start = end
            yield self._decoder.decode(frame)
        if start:
            del self._left[:start]


_encoder = msgspec.msgpack.Encoder()


def frame(messages: Sequence[ToEngine | ToFront]) -> bytes:
    """Return messages as one frame."""
    body = _encoder.encode(messages)
    return _LENGTH.pack(len(body)) + body
