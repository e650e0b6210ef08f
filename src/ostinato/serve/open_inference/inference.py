"""A request for inference and its reply, whichever way they came in: plain values.

Tensors are those of `serve.callable`. The protocol's BYTES, which no model of tensors takes, are
texts: one behind the other, each led by its length in four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from ostinato.serve.callable import Array
from ostinato.serve.open_inference.refusals import Refusal, malformed

BYTES: Final = "BYTES"
_LENGTH: Final = struct.Struct("<I")
_MOST_DIMENSIONS: Final = 16
_MOST_ELEMENTS: Final = 1 << 32
_UNKEPT: Final = ("sequence_id", "sequence_start", "sequence_end")
_SHARED_MEMORY: Final = "shared_memory_region"


@dataclass(frozen=True, slots=True)
class InferRequest:
    """What is asked of a model.

    Attributes:
        outputs: Names of those wanted; empty: all.
    """

    inputs: Mapping[str, Array]
    outputs: Sequence[str] = ()
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def priority(self) -> int:
        """The smaller, the sooner; 0 is ordinary.

        Raises:
            Refusal: It is no whole number.
        """
        return self._whole("priority", 0)

    @property
    def timeout_s(self) -> float | None:
        """How long the answer is of use; the protocol's clients say it in microseconds.

        Raises:
            Refusal: It is no whole number.
        """
        timeout_us = self._whole("timeout", 0)
        return timeout_us / 1e6 if timeout_us > 0 else None

    def _whole(self, name: str, otherwise: int) -> int:
        value = self.parameters.get(name, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
            raise malformed(f"the parameter {name} must be a whole number, got {value!r:.40}")
        return value

    def check_parameters(self) -> None:
        """Refuse what is not done here, rather than leave it undone unsaid.

        Raises:
            Refusal: Sequences are asked for.
        """
        for name in _UNKEPT:
            if name in self.parameters:
                raise malformed(f"{name} is given, and this server keeps no sequences of requests")


@dataclass(frozen=True, slots=True)
class InferReply:
    """What a model answers."""

    model: str
    version: str
    outputs: Mapping[str, Array]
    id: str = ""


def check_tensor(name: str, shape: Sequence[int], parameters: Mapping[str, Any]) -> None:
    """Refuse a tensor that cannot be: before anything is made as large as it says.

    Raises:
        Refusal: Its shape is none, or its data is not in the request.
    """
    is_shape = len(shape) <= _MOST_DIMENSIONS and all(0 <= size <= _MOST_ELEMENTS for size in shape)
    if not is_shape or prod(shape) > _MOST_ELEMENTS:
        raise malformed(f"the tensor {name!r:.60} has no shape that can be: {shape!r:.100}")
    if _SHARED_MEMORY in parameters:
        raise malformed(
            f"the data of {name!r:.60} is in shared memory, which this server does not read"
        )


def join_texts(texts: Sequence[bytes], shape: Sequence[int]) -> Array:
    """Return texts as a tensor."""
    data = b"".join(_LENGTH.pack(len(text)) + text for text in texts)
    return Array(BYTES, tuple(shape), data)


def cut_texts(name: str, array: Array) -> list[bytes]:
    """Return the texts of a tensor.

    Raises:
        Refusal: Its bytes are no texts, or not as many as its shape says.
    """
    texts, place, data = [], 0, array.data
    while place < len(data):
        if place + _LENGTH.size > len(data):
            raise malformed(f"the texts of {name!r:.60} end in the midst of one")
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size + length
        if place > len(data):
            raise malformed(f"the texts of {name!r:.60} end in the midst of one")
        texts.append(data[place - length : place])
    if len(texts) != prod(array.shape):
        raise malformed(
            f"{name!r:.60} has {len(texts)} texts, and its shape is {list(array.shape)}"
        )
    return texts


def decoded(name: str, text: bytes) -> str:
    """Return a text in letters.

    Raises:
        Refusal: It is no UTF-8.
    """
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        said = f"a text of {name!r:.60} is not written in UTF-8, as its byte {error.start} shows"
        raise malformed(f"{said}; send it in UTF-8") from error


def pick(outputs: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
    """Return the outputs that were asked for.

    Raises:
        Refusal: There is none of that name.
    """
    for name in wanted:
        if name not in outputs:
            raise Refusal(400, f"there is no output {name!r:.60}; there are {', '.join(outputs)}")
    return {name: outputs[name] for name in wanted or outputs}
