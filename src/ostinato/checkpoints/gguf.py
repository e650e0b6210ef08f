"""Reads one GGUF file: its metadata, and its tensors as float32.

A GGUF file is a header (key/value metadata), a table of tensors, then their bytes, quantised in
blocks. The `gguf` package on PyPI knows every storage type, but through it transformers takes 24 s
to load the 98 MB file this project runs (it parses the vocabulary string by string, twice). This
reader takes 0.1 s for the header and knows the six types that matter here (`ggml_types.py`).

Every length in the file is checked against the file's size before it is believed, so that a
truncated or corrupt file gives one clear error. `convert.py` is the caller.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostinato.checkpoints.ggml_types import TYPE_NAMES, dequantise, storage, unsupported_type
from ostinato.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from numpy.typing import NDArray

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies in the file.

    Attributes:
        shape: Row-major, as numpy and torch count (the file lists the innermost size first).
        type_name: Its storage, such as "Q4_1".
        start: First byte, from the beginning of the file.
        nbytes: Bytes in the file; None when the storage type is unknown.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    start: int
    nbytes: int | None


class GgufFile:
    """One GGUF file, open for reading.

    Attributes:
        path: The file.
        metadata: Every key of the header; strings, numbers, booleans and lists of them.
        tensors: Every tensor by its name in the file.

    Raises:
        UsageError: OST2001, the file is missing, not a GGUF file, truncated or corrupt.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._map = _map_file(self.path)
        try:
            cursor = _Cursor(self._map, self.path)
            tensor_count, key_count = _read_preamble(cursor)
            self.metadata: Mapping[str, Any] = _read_metadata(cursor, key_count)
            self.tensors: Mapping[str, TensorInfo] = _read_tensor_table(
                cursor, tensor_count, self.metadata.get("general.alignment", 32)
            )
        except BaseException:
            self._map.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays already read stay valid."""
        self._map.close()

    def array(self, name: str) -> NDArray[np.float32]:
        """Return one tensor as float32, owned by the caller.

        Raises:
            UsageError: OST2002, its storage type is unknown here.
        """
        info = self.tensors[name]
        where = f"tensor {name!r} of {self.path.name}"
        if info.nbytes is None:
            raise unsupported_type(info.type_name, where)
        # Slicing copies, so no view of the map outlives this call and `close` always succeeds.
        raw = self._map[info.start : info.start + info.nbytes]
        return dequantise(raw, info.type_name, where).reshape(info.shape)


class _Cursor:
    """Reads little-endian values one after the other and never past the end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.at = 0

    def corrupt(self, what: str) -> UsageError:
        return _bad_file(self.path, f"{what} (at byte {self.at} of {len(self.data)})")

    def take(self, count: int) -> int:
        """Claim `count` bytes and return where they begin."""
        start = self.at
        if count > len(self.data) - start:
            raise self.corrupt(f"it ends early: {count} more bytes were announced")
        self.at = start + count
        return start

    def scalar(self, kind: int) -> Any:
        form = _SCALARS.get(kind)
        if form is None:
            raise self.corrupt(f"value type {kind} does not exist")
        return form.unpack_from(self.data, self.take(form.size))[0]

    def u32(self) -> int:
        return int(self.scalar(4))

    def u64(self) -> int:
        return int(self.scalar(10))

    def string(self) -> str:
        count = self.u64()
        start = self.take(count)
        try:
            return self.data[start : start + count].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.corrupt("a string is not UTF-8") from error

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        return self.array() if kind == _ARRAY else self.scalar(kind)

    def array(self) -> list[Any]:
        kind, count = self.u32(), self.u64()
        if kind == _STRING:
            # A string takes at least its 8-byte length: bounds a corrupt count before the loop.
            if count * 8 > len(self.data) - self.at:
                raise self.corrupt(f"it ends early: an array announces {count} strings")
            return [self.string() for _ in range(count)]
        form = _SCALARS.get(kind)
        if form is None:
            raise self.corrupt(f"an array of value type {kind} is not supported")
        start = self.take(count * form.size)
        return [item[0] for item in form.iter_unpack(self.data[start : self.at])]


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:  # an empty file cannot be mapped
        raise _bad_file(path, "it is empty") from error
    except OSError as error:
        raise _bad_file(path, f"it cannot be read: {error.strerror or error}") from error


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    magic = cursor.data[:4]
    if magic != b"GGUF":
        raise _bad_file(cursor.path, f"it begins with {magic!r}, not b'GGUF'")
    cursor.take(4)
    version = cursor.u32()
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        kind = "a big-endian file" if swapped in (2, 3) else f"version {version}"
        raise _bad_file(cursor.path, f"it is {kind}; little-endian versions 2 and 3 are read")
    return cursor.u64(), cursor.u64()


def _read_metadata(cursor: _Cursor, key_count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = cursor.string()
        if key in metadata:
            raise cursor.corrupt(f"the key {key!r} appears twice")
        metadata[key] = cursor.value(cursor.u32())
    return metadata


def _read_tensor_table(cursor: _Cursor, count: int, alignment: Any) -> dict[str, TensorInfo]:
    if not isinstance(alignment, int) or alignment < 1 or alignment % 8:
        raise cursor.corrupt(f"general.alignment is {alignment!r}, not a multiple of 8")
    rows = [_read_tensor_row(cursor) for _ in range(count)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, type_name, offset in rows:
        info = TensorInfo(name, shape, type_name, data_start + offset, _nbytes(shape, type_name))
        if name in tensors:
            raise cursor.corrupt(f"the tensor {name!r} appears twice")
        if offset % alignment:
            raise cursor.corrupt(f"tensor {name!r} is not aligned to {alignment} bytes")
        if info.start + (info.nbytes or 0) > len(cursor.data):
            missing = info.start + (info.nbytes or 0) - len(cursor.data)
            raise cursor.corrupt(f"it ends early: tensor {name!r} lacks {missing} bytes")
        tensors[name] = info
    return tensors


def _read_tensor_row(cursor: _Cursor) -> tuple[str, tuple[int, ...], str, int]:
    name = cursor.string()
    dimensions = cursor.u32()
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise cursor.corrupt(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(cursor.u64() for _ in range(dimensions))[::-1]
    kind = cursor.u32()
    type_name = TYPE_NAMES.get(kind, f"type {kind}")
    known = storage(type_name)
    if known is not None and shape[-1] % known.block_values:
        raise cursor.corrupt(f"tensor {name!r} has rows of {shape[-1]}, not whole blocks")
    return name, shape, type_name, cursor.u64()


def _nbytes(shape: tuple[int, ...], type_name: str) -> int | None:
    known = storage(type_name)
    if known is None:
        return None
    return math.prod(shape) // known.block_values * known.block_bytes


def _bad_file(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} is not a readable GGUF file: {what}",
        code="OST2001",
        remedy="download or copy the file again, and compare its size with the original",
    )
