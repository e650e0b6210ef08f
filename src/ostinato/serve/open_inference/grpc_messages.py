"""Inference requests as gRPC's messages say them, and replies; these have raw tensors always."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ostinato.errors import OstinatoError
from ostinato.serve.callable import Array
from ostinato.serve.callable.arrays import from_numbers
from ostinato.serve.open_inference.inference import (
    BYTES,
    InferReply,
    InferRequest,
    check_tensor,
    join_texts,
)
from ostinato.serve.open_inference.metadata import Metadata
from ostinato.serve.open_inference.protocol import messages
from ostinato.serve.open_inference.refusals import malformed, refusal_of

_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOL": "bool_contents",
        "INT8": "int_contents",
        "INT16": "int_contents",
        "INT32": "int_contents",
        "INT64": "int64_contents",
        "UINT8": "uint_contents",
        "UINT16": "uint_contents",
        "UINT32": "uint_contents",
        "UINT64": "uint64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        BYTES: "bytes_contents",
    }
)


def read_infer(message: Any) -> InferRequest:
    """Read a request.

    Raises:
        Refusal: It is no request.
    """
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise malformed(f"{len(message.inputs)} inputs have {len(raw)} raw contents")
    inputs: dict[str, Array] = {}
    for place, one in enumerate(message.inputs):
        if one.name in inputs:
            raise malformed(f"the input {one.name!r:.60} is given twice")
        inputs[one.name] = _array(one, raw[place] if raw else None)
    for output in message.outputs:
        if "classification" in output.parameters:
            raise malformed("classification is asked for, and this server gives tensors alone")
    names = tuple(output.name for output in message.outputs)
    return InferRequest(inputs, names, message.id, _parameters(message.parameters))


def _array(one: Any, raw: bytes | None) -> Array:
    check_tensor(one.name, one.shape, _parameters(one.parameters))
    shape = tuple(one.shape)
    if raw is not None:
        if one.HasField("contents"):
            raise malformed(f"the input {one.name!r:.60} has contents, and raw ones beside")
        return Array(one.datatype, shape, bytes(raw))
    field = _FIELDS.get(one.datatype)
    if field is None:
        raise malformed(f"an input of datatype {one.datatype!r:.20} must have raw contents")
    values = getattr(one.contents, field)
    if one.datatype == BYTES:
        return join_texts(list(values), shape)
    try:
        return from_numbers(one.name, one.datatype, shape, list(values))
    except OstinatoError as error:
        raise refusal_of(error) from error


def _parameters(given: Any) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is not None:
            found[name] = getattr(value, choice)
    return found


def write_infer(reply: InferReply) -> Any:
    """Return a reply."""
    message = messages()["ModelInferResponse"](
        model_name=reply.model, model_version=reply.version, id=reply.id
    )
    for name, array in reply.outputs.items():
        message.outputs.add(name=name, datatype=array.datatype, shape=array.shape)
        message.raw_output_contents.append(array.data)
    return message


def write_metadata(told: Metadata) -> Any:
    """Return a model's metadata."""
    message = messages()["ModelMetadataResponse"](
        name=told.name, versions=[told.version], platform=told.platform
    )
    for name, (datatype, shape) in told.inputs.items():
        message.inputs.add(name=name, datatype=datatype, shape=shape)
    for name, (datatype, shape) in told.outputs.items():
        message.outputs.add(name=name, datatype=datatype, shape=shape)
    message.properties.update(told.properties)
    return message
