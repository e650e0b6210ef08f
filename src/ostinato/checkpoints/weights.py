"""The safetensors files of a folder: which there are, whether they are whole, what they hold.

Only headers are read, so this takes milliseconds for any model (`read_ahead` alone reads more).
`folder.py` asks before it loads, so that a lost shard or a file cut short is one clear error and
not a traceback from deep inside.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostinato.checkpoints.json_file import parse_json, read_json
from ostinato.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MOST_HEADER_BYTES = 100 << 20
_READ_BYTES = 16 << 20
_ITEM_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2,
    "I16": 2, "U16": 2, "BOOL": 1, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip
_FLOATING = frozenset({"F64", "F32", "F16", "BF16"})


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a safetensors file, by its header."""

    dtype: str
    elements: int

    def bytes_as(self, item_bytes: int | None) -> int:
        """Return its size in memory when floats take `item_bytes` each; None: as stored."""
        if item_bytes is None or self.dtype not in _FLOATING:
            return self.elements * _ITEM_BYTES.get(self.dtype, 4)
        return self.elements * item_bytes


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return every tensor of the model in `folder`, by name.

    Raises:
        UsageError: OST2021, no safetensors file; OST2022, a shard named in the index is missing;
            OST2023, a file is corrupt or cut short.
    """
    if (folder / _SINGLE).is_file():
        return _read_header(folder / _SINGLE)
    if not (folder / _INDEX).is_file():
        raise UsageError(
            f"{folder} holds no weights: neither {_SINGLE} nor {_INDEX}",
            code="OST2021",
            remedy="save the model with save_pretrained(DIR) and give that folder; "
            "pickled .bin files are not loaded, since they can run code",
        )
    return _read_shards(folder, _read_index(folder / _INDEX))


def read_ahead(folder: Path) -> None:
    """Read the weight files of a folder once, so that whoever loads them next finds them in memory.

    What the system does not keep is read again then: slower, and as right.

    Raises:
        UsageError: As `stored_tensors`.
    """
    single = folder / _SINGLE
    shards = [_SINGLE] if single.is_file() else set(_read_index(folder / _INDEX).values())
    room = bytearray(_READ_BYTES)
    for shard in sorted(shards):
        try:
            with (folder / shard).open("rb", buffering=0) as file:
                while file.readinto(room):
                    pass
        except OSError as error:
            raise _unreadable(folder / shard, error) from error


def _read_index(path: Path) -> Mapping[str, str]:
    try:
        weight_map = read_json(path)["weight_map"]
        if all(isinstance(name, str) for pair in weight_map.items() for name in pair):
            return dict(weight_map)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _corrupt(path, f"it is no index of shards ({error})") from error
    raise _corrupt(path, "it is no index of shards")


def _read_shards(folder: Path, weight_map: Mapping[str, str]) -> dict[str, StoredTensor]:
    shards = sorted(set(weight_map.values()))
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise UsageError(
            f"{folder} lacks {len(missing)} of its {len(shards)} weight files: "
            f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}",
            code="OST2022",
            remedy="copy the missing files into the folder; "
            f"{_INDEX} lists all that belong to the model",
        )
    headers = {shard: _read_header(folder / shard) for shard in shards}
    for name, shard in weight_map.items():
        if name not in headers[shard]:
            raise _corrupt(folder / shard, f"it lacks the tensor {name!r} that the index names")
    return {name: headers[shard][name] for name, shard in weight_map.items()}


def _read_header(path: Path) -> dict[str, StoredTensor]:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MOST_HEADER_BYTES):
                raise _corrupt(path, f"its header of {length} bytes does not fit its {size} bytes")
            text = file.read(length)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        header: dict[str, Any] = parse_json(text)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        read = {name: _read_entry(entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _corrupt(path, f"its header is not readable ({error})") from error
    expected = 8 + length + max((end for _, end in read.values()), default=0)
    if expected != size:
        raise _corrupt(path, f"it has {size} bytes, and its header announces {expected}")
    return {name: tensor for name, (tensor, _) in read.items()}


def _read_entry(entry: Mapping[str, Any]) -> tuple[StoredTensor, int]:
    """Return a tensor of a header, and where its bytes end."""
    dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    numbers = [*shape, begin, end]
    if not all(type(number) is int and number >= 0 for number in numbers) or begin > end:
        raise ValueError(f"a tensor of shape {shape} from byte {begin} to {end}")
    if not isinstance(dtype, str):
        raise ValueError(f"a tensor of type {dtype}")
    tensor = StoredTensor(dtype, math.prod(shape))
    if dtype in _ITEM_BYTES and tensor.elements * _ITEM_BYTES[dtype] != end - begin:
        raise ValueError(f"a tensor of {dtype} and shape {shape} in {end - begin} bytes")
    return tensor, end


def _corrupt(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} is corrupt: {what}",
        code="OST2023",
        remedy="copy or download this file again",
    )


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be read: {error.strerror or error}",
        code="OST2023",
        remedy="let this user read the file, or copy it to a disk that works",
    )
