"""How the numbers of a GGUF tensor are stored, and how they become float32 again.

A quantised row is a chain of blocks; a block holds a scale (and for some types a minimum) for 32
numbers. `dequantise` undoes six of these types with whole-array numpy; `gguf.py` asks here how many
bytes a tensor takes, and names the types that nothing here can undo.

The arithmetic is that of llama.cpp, step by step in float32, so results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Storage:
    """One storage type: `block_bytes` bytes hold `block_values` numbers."""

    block_values: int
    block_bytes: int
    decode: Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def _f32(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    return raw.view("<f4").astype(np.float32)


def _f16(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    return raw.view("<f2").astype(np.float32)


def _bf16(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    # A bfloat16 is the upper half of a float32.
    wide: NDArray[np.uint32] = raw.view("<u2").astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def _scales(blocks: NDArray[np.uint8], at: int) -> NDArray[np.float32]:
    halves = np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")
    return halves.astype(np.float32)


def _nibbles(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Unpack 16 bytes into 32 numbers of 0..15: the low halves first, then the high halves."""
    values = np.empty((len(packed), 32), dtype=np.float32)
    np.bitwise_and(packed, 15, out=values[:, :16], casting="unsafe")
    np.right_shift(packed, 4, out=values[:, 16:], casting="unsafe")
    return values


def _q4_0(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    blocks = raw.reshape(-1, 18)
    values = _nibbles(blocks[:, 2:])
    values -= 8
    values *= _scales(blocks, 0)
    return values.reshape(-1)


def _q4_1(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    blocks = raw.reshape(-1, 20)
    values = _nibbles(blocks[:, 4:])
    values *= _scales(blocks, 0)
    values += _scales(blocks, 2)
    return values.reshape(-1)


def _q8_0(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    blocks = raw.reshape(-1, 34)
    values = blocks[:, 2:].view(np.int8).astype(np.float32)
    values *= _scales(blocks, 0)
    return values.reshape(-1)


_STORAGES = {
    "F32": Storage(1, 4, _f32),
    "F16": Storage(1, 2, _f16),
    "BF16": Storage(1, 2, _bf16),
    "Q4_0": Storage(32, 18, _q4_0),
    "Q4_1": Storage(32, 20, _q4_1),
    "Q8_0": Storage(32, 34, _q8_0),
}


def storage(type_name: str) -> Storage | None:
    """Return how `type_name` is stored, or None if this package cannot undo it."""
    return _STORAGES.get(type_name)


def dequantise(raw: Any, type_name: str, where: str) -> NDArray[np.float32]:
    """Turn the bytes of one tensor into a flat float32 array.

    Raises:
        UsageError: OST2002, `type_name` is not one of the six known types.
    """
    known = storage(type_name)
    if known is None:
        raise unsupported_type(type_name, where)
    return known.decode(np.frombuffer(raw, dtype=np.uint8))


def unsupported_type(type_name: str, where: str) -> UsageError:
    """Build the error for a tensor whose type nothing here can undo."""
    return UsageError(
        f"{where} is stored as {type_name}, which this reader does not know",
        code="OST2002",
        remedy=f"use a GGUF file made of {', '.join(sorted(_STORAGES))}, "
        "or the safetensors folder of the same model",
    )
