"""What a front end and the process of a callable say to each other; frames as in `serve.wire`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ostinato.serve import wire
from ostinato.serve.callable.arrays import Array
from ostinato.serve.callable.faults import Failure
from ostinato.serve.callable.service import Description, Numbers


class Infer(msgspec.Struct, array_like=True, tag="i"):
    """Ask for one answer; `key` names it on this connection; `alone`: in a run of its own."""

    key: int
    inputs: dict[str, Array]
    priority: int
    timeout_s: float | None
    alone: bool = False


class Cancel(msgspec.Struct, array_like=True, tag="c"):
    """Nobody waits for this one any more."""

    key: int


class Count(msgspec.Struct, array_like=True, tag="n"):
    """Ask what happened so far."""

    key: int


class Drain(msgspec.Struct, array_like=True, tag="d"):
    """Take no more, and say when all is answered."""

    key: int
    bound_s: float


class Hello(msgspec.Struct, array_like=True, tag="h"):
    """The model is warm; this is what it is."""

    description: Description


class Began(msgspec.Struct, array_like=True, tag="b"):
    """These run now: should the process end before they are answered, one of them may be why."""

    keys: list[int]


class Done(msgspec.Struct, array_like=True, tag="o"):
    """An answer."""

    key: int
    outputs: dict[str, Array]


class Failed(msgspec.Struct, array_like=True, tag="f"):
    """A request that was not answered."""

    key: int
    failure: Failure


class Counted(msgspec.Struct, array_like=True, tag="m"):
    """What happened so far."""

    key: int
    numbers: Numbers


class Drained(msgspec.Struct, array_like=True, tag="e"):
    """No more is taken; whether all was answered in time."""

    key: int
    is_empty: bool


ToModel = Infer | Cancel | Count | Drain
ToFront = Hello | Began | Done | Failed | Counted | Drained


def frame(messages: Sequence[ToModel | ToFront]) -> bytes:
    """Return messages as one frame."""
    return wire.frame(cast(Any, messages))


def to_model() -> wire.Reader:
    """Return a reader of what front ends say."""
    return wire.Reader(ToModel)


def to_front() -> wire.Reader:
    """Return a reader of what the model's process says."""
    return wire.Reader(ToFront)
