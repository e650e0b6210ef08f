"""Bodies of inference over HTTP: JSON, with tensors behind it as they lie in memory if asked for.

The binary extension: the JSON's length stands in the header `Inference-Header-Content-Length`, each
tensor that follows says its bytes in the parameter `binary_data_size`, in the order of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ostinato.errors import OstinatoError
from ostinato.serve.callable import Array
from ostinato.serve.callable.arrays import from_numbers, numbers
from ostinato.serve.open_inference.inference import (
    BYTES,
    InferReply,
    InferRequest,
    check_tensor,
    cut_texts,
    decoded,
    join_texts,
)
from ostinato.serve.open_inference.refusals import Refusal, malformed, refusal_of
from ostinato.serve.openai.wording import of_body

HEADER: Final = "inference-header-content-length"
_SIZE: Final = "binary_data_size"
_BINARY: Final = "application/octet-stream"


class InferInput(msgspec.Struct):
    """A tensor; `data` is nested or flat, and absent where its bytes follow the JSON."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: Any = None


class InferOutput(msgspec.Struct):
    """An output that is wanted."""

    name: str
    parameters: dict[str, Any] = {}


class InferBody(msgspec.Struct):
    """The JSON of a request."""

    inputs: list[InferInput]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[InferOutput] = []


class Asked(msgspec.Struct):
    """A request, and which of its outputs are wanted as they lie in memory."""

    request: InferRequest
    binary: dict[str, bool]
    is_binary: bool

    def wants_binary(self, name: str) -> bool:
        """Whether an output is to follow the JSON."""
        return self.binary.get(name, self.is_binary)


_decoder = msgspec.json.Decoder(InferBody)


def read_infer(body: bytes, json_bytes: str | None) -> Asked:
    """Read a request.

    Args:
        json_bytes: What the header said; None: all of the body is JSON.

    Raises:
        Refusal: It is no request.
    """
    end = len(body) if json_bytes is None else _whole(json_bytes, len(body))
    text = memoryview(body)[:end]
    try:
        read = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(of_body(error, InferBody, text)[0]) from error
    inputs: dict[str, Array] = {}
    for one in read.inputs:
        if one.name in inputs:
            raise malformed(f"the input {one.name!r:.60} is given twice")
        inputs[one.name], end = _array(one, body, end)
    if end != len(body):
        raise malformed(f"{len(body) - end} bytes follow that belong to no input")
    for output in read.outputs:
        if output.parameters.get("classification"):
            raise malformed("classification is asked for, and this server gives tensors alone")
    names = tuple(output.name for output in read.outputs)
    binary = {one.name: bool(one.parameters.get("binary_data", False)) for one in read.outputs}
    is_binary = bool(read.parameters.get("binary_data_output", False))
    return Asked(InferRequest(inputs, names, read.id, read.parameters), binary, is_binary)


def _array(one: InferInput, body: bytes, start: int) -> tuple[Array, int]:
    """Return an input and where the next one's bytes begin."""
    check_tensor(one.name, one.shape, one.parameters)
    shape = tuple(one.shape)
    if _SIZE in one.parameters:
        if one.data is not None:
            raise malformed(f"the input {one.name!r:.60} has data in the JSON and behind it")
        size = _whole(one.parameters[_SIZE], len(body) - start)
        array = Array(one.datatype, shape, body[start : start + size])
        return array, start + size
    if one.datatype == BYTES:
        return join_texts([_text(one.name, text) for text in _flat(one.data)], shape), start
    try:
        return from_numbers(one.name, one.datatype, shape, one.data), start
    except OstinatoError as error:
        raise refusal_of(error) from error


def _flat(data: object) -> list[object]:
    """Return what lists hold, in order; they may nest more deeply than calls can."""
    found, left = [], [data]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += reversed(one)
        else:
            found.append(one)
    return found


def _text(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise malformed(f"the input {name!r:.60} is of texts, and {text!r:.40} is none")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise malformed(f"a text of {name!r:.60} has half a character") from error


def _whole(given: object, most: int) -> int:
    text = str(given)
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > most:
        raise malformed(f"{text[:40]!r} is no number of bytes that this body holds")
    return int(text)


def write_infer(reply: InferReply, asked: Asked) -> tuple[bytes, dict[str, str]]:
    """Return the body of a reply, and its headers."""
    behind: list[bytes] = []
    outputs = [_written(name, array, asked, behind) for name, array in reply.outputs.items()]
    head: dict[str, Any] = {"model_name": reply.model, "model_version": reply.version}
    if reply.id:
        head["id"] = reply.id
    text = msgspec.json.encode({**head, "outputs": outputs})
    if not behind:
        return text, {"content-type": "application/json"}
    headers = {"content-type": _BINARY, HEADER: str(len(text))}
    return b"".join([text, *behind]), headers


def _written(name: str, array: Array, asked: Asked, behind: list[bytes]) -> Mapping[str, Any]:
    told: dict[str, Any] = {"name": name, "datatype": array.datatype, "shape": array.shape}
    if asked.wants_binary(name):
        behind.append(array.data)
        return told | {"parameters": {_SIZE: len(array.data)}}
    if array.datatype == BYTES:
        try:
            return told | {"data": [decoded(name, text) for text in cut_texts(name, array)]}
        except Refusal as error:
            raise Refusal(500, str(error)) from error
    return told | {"data": numbers(array)}
