"""Tensors as they travel: a datatype's word, a shape, and bytes in row-major order. No torch.

The words are those of the Open Inference Protocol, so nothing is translated between its wire and
the model. A batch of requests is the bytes of its requests one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from ostinato.errors import UsageError

ITEM_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "BOOL": 1,
        "UINT8": 1,
        "UINT16": 2,
        "UINT32": 4,
        "UINT64": 8,
        "INT8": 1,
        "INT16": 2,
        "INT32": 4,
        "INT64": 8,
        "FP16": 2,
        "BF16": 2,
        "FP32": 4,
        "FP64": 8,
    }
)

# numpy has no BF16: what is sent as numbers goes through FP32, in `numbers` and `from_numbers`.
_NUMPY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOL": "?",
        "UINT8": "u1",
        "UINT16": "<u2",
        "UINT32": "<u4",
        "UINT64": "<u8",
        "INT8": "i1",
        "INT16": "<i2",
        "INT32": "<i4",
        "INT64": "<i8",
        "FP16": "<f2",
        "FP32": "<f4",
        "FP64": "<f8",
    }
)

# What JSON has beside numbers, true, false and lists.
_STRANGERS: Final = ((str, "a text"), (dict, "an object"), (type(None), "null"))


class Array(msgspec.Struct, frozen=True, array_like=True):
    """One tensor; the first dimension counts rows."""

    datatype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def rows(self) -> int:
        """The size of the first dimension."""
        return self.shape[0] if self.shape else 0


Arrays = Mapping[str, Array]


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, Sequence)
        and all(isinstance(size, Integral) and int(size) >= -1 for size in shape)
        and [*shape[:1]] == [-1]
    )


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a model says of one of its tensors.

    Attributes:
        datatype: A word of `ITEM_BYTES`.
        shape: The first dimension counts rows and is -1; another -1 is a size that may vary, and
            only requests with equal sizes share a batch.

    Raises:
        UsageError: OST6052, an unknown datatype, or a shape that does not begin with -1.
    """

    datatype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.datatype, str) or self.datatype not in ITEM_BYTES:
            raise UsageError(
                f"there is no tensor datatype {self.datatype!r}",
                code="OST6052",
                remedy=f"declare one of {', '.join(ITEM_BYTES)}",
            )
        if not _is_shape(self.shape):
            raise UsageError(
                f"a tensor's shape must be whole numbers and begin with -1, for the rows of a "
                f"batch, got {self.shape!r}",
                code="OST6052",
                remedy="declare a shape such as (-1, 3, 224, 224)",
            )

    def check(self, name: str, array: Array) -> None:
        """Refuse a tensor that is not of this kind.

        Raises:
            UsageError: OST6050, datatype, shape or number of bytes differ.
        """
        if array.datatype != self.datatype:
            raise _unlike(name, f"has the datatype {array.datatype!r:.20}", self)
        fits = len(array.shape) == len(self.shape) and all(
            size == wanted or (wanted == -1 and size >= 1)
            for size, wanted in zip(array.shape, self.shape, strict=True)
        )
        if not fits:
            raise _unlike(name, f"has the shape {list(array.shape)}", self)
        wanted_bytes = prod(array.shape) * ITEM_BYTES[self.datatype]
        if len(array.data) != wanted_bytes:
            has = f"of shape {list(array.shape)} has {len(array.data)} bytes, not {wanted_bytes},"
            raise _unlike(name, has, self)


def rows_of(inputs: Arrays, specs: Mapping[str, TensorSpec]) -> int:
    """Check a request's tensors against the model's and return its number of rows.

    Raises:
        UsageError: OST6051, an input is missing or unknown, or the inputs differ in their rows;
            OST6050, one is of another kind.
    """
    for name in specs.keys() - inputs.keys():
        raise _unnamed(f"the input {name!r} is missing", specs)
    for name in inputs.keys() - specs.keys():
        raise _unnamed(f"there is no input {name!r:.60}", specs)
    for name, array in inputs.items():
        specs[name].check(name, array)
    rows = {name: array.rows for name, array in inputs.items()}
    if len(set(rows.values())) > 1:
        raise _unnamed(f"the inputs differ in their numbers of rows: {rows}", specs)
    return next(iter(rows.values()))


def kind_of(inputs: Arrays) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return what two requests must have in common to share a batch: all sizes but the rows."""
    return tuple((name, inputs[name].shape[1:]) for name in sorted(inputs))


def cut_rows(array: Array, sizes: Sequence[int]) -> list[Array]:
    """Return the consecutive parts of an array that have so many rows each."""
    row_bytes = len(array.data) // array.rows if array.rows else 0
    parts, start = [], 0
    for size in sizes:
        end = start + size
        data = array.data[start * row_bytes : end * row_bytes]
        parts.append(Array(array.datatype, (size, *array.shape[1:]), data))
        start = end
    return parts


def from_numbers(name: str, datatype: str, shape: tuple[int, ...], values: object) -> Array:
    """Return an array from numbers as JSON gives them, flat or nested.

    Raises:
        UsageError: OST6050, they are no numbers of this datatype, or not as many as the shape says.
    """
    if datatype not in ITEM_BYTES:
        raise _unsendable(name, f"there is no tensor datatype {datatype!r:.20}")
    _check_kinds(name, datatype, values)
    through = "<f4" if datatype == "BF16" else _NUMPY[datatype]
    try:
        found = np.asarray(values)
    except ValueError as error:
        why = "they are lists of unequal lengths, or too many within each other"
        raise _unsendable(name, why) from error
    try:
        with np.errstate(over="raise", invalid="raise"):
            # Whole numbers of more than 64 bits come as Python's own.
            numbers = (found.astype("<f8") if found.dtype.kind == "O" else found).astype(through)
    except (OverflowError, FloatingPointError) as error:
        raise _unsendable(name, f"{datatype} cannot hold a number among them") from error
    if numbers.dtype.kind in "iub" and not np.array_equal(numbers, found):
        raise _unsendable(name, f"not all of them are of datatype {datatype}")
    if numbers.size != prod(shape):
        raise _unsendable(name, f"{numbers.size} of them, and the shape is {list(shape)}")
    return Array(datatype, shape, _bf16_bytes(numbers) if datatype == "BF16" else numbers.tobytes())


def _check_kinds(name: str, datatype: str, values: object) -> None:
    """Refuse what is no number, and what numpy would convert: true and false, and numbers to it."""
    kinds = _kinds_in(values)
    for kind, said in _STRANGERS:
        if kind in kinds:
            wanted = "true and false" if datatype == "BOOL" else "numbers"
            raise _unsendable(name, f"{datatype} is of {wanted}, and there is {said} among them")
    if datatype == "BOOL" and kinds - {bool}:
        raise _unsendable(name, "BOOL is of true and false, and there is a number among them")
    if datatype != "BOOL" and bool in kinds:
        raise _unsendable(name, f"{datatype} is of numbers, and there is true or false among them")


def _kinds_in(values: object) -> set[type]:
    """Return the types of what lists hold, however deep."""
    left: list[object] = [values]
    kinds: set[type] = set()
    while left:
        one = left.pop()
        if not isinstance(one, list):
            kinds.add(type(one))
            continue
        within = set(map(type, one))
        kinds |= within - {list}
        if list in within:
            left += [each for each in one if isinstance(each, list)]
    return kinds


def numbers(array: Array) -> list[object]:
    """Return the elements as plain numbers, flat, as JSON takes them."""
    if array.datatype == "BF16":
        halves = np.frombuffer(array.data, "<u2").astype("<u4") << 16
        return list(halves.view("<f4").tolist())
    return list(np.frombuffer(array.data, _NUMPY[array.datatype]).tolist())


def _bf16_bytes(values: np.ndarray) -> bytes:
    bits = np.ascontiguousarray(values).view("<u4").astype("<u8")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, ties to even
    return np.where(np.isnan(values), 0x7FC0, rounded).astype("<u2").tobytes()


def _unlike(name: str, what: str, spec: TensorSpec) -> UsageError:
    return UsageError(
        f"the input {name!r:.60} {what} and the model takes {spec.datatype} {list(spec.shape)}",
        code="OST6050",
        remedy="send the tensor that the model's metadata describes; -1 is any size",
    )


def _unnamed(problem: str, specs: Mapping[str, TensorSpec]) -> UsageError:
    return UsageError(
        problem,
        code="OST6051",
        remedy=f"send these inputs, with equal first dimensions: {', '.join(specs)}",
    )


def _unsendable(name: str, why: str) -> UsageError:
    return UsageError(
        f"the data of the input {name!r:.60} cannot be read: {why[:200]}",
        code="OST6050",
        remedy="send as many numbers of the tensor's datatype as its shape says",
    )
