"""Writes small GGUF files, by the letter of the format and without the reader under test.

Quantised blocks are written from their parts, and `numbers_of` decodes one block in plain Python,
one number at a time: the slow twin that the reader is held against.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

type_ids = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "BF16": 30}
block_values = {"F32": 1, "F16": 1, "BF16": 1, "Q4_0": 32, "Q4_1": 32, "Q8_0": 32}


@dataclass(frozen=True, slots=True)
class Written:
    """One tensor of a file: `shape` row-major, `raw` its bytes."""

    shape: tuple[int, ...]
    type_name: str
    raw: bytes


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item: Any) -> bytes:
    """A metadata value with its type in front."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + string(item)
    kind, parts = array_parts(item)
    return struct.pack("<IIQ", 9, kind, len(item)) + b"".join(parts)


def array_parts(items: Sequence[Any]) -> tuple[int, list[bytes]]:
    if isinstance(items[0], str):
        return 8, [string(item) for item in items]
    return 5, [struct.pack("<i", item) for item in items]


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Written],
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(string(key) + value(item) for key, item in metadata.items())
    data = b""
    for name, tensor in tensors.items():
        data += b"\0" * (-len(data) % alignment)
        sizes = tensor.shape[::-1]
        head += string(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        head += struct.pack("<IQ", type_ids[tensor.type_name], len(data))
        data += tensor.raw
    return head + b"\0" * (-len(head) % alignment) + data


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Written], **options: int
) -> Path:
    path.write_bytes(gguf_bytes(metadata, tensors, **options))
    return path


def block(type_name: str, dice: random.Random) -> bytes:
    """One random block of a storage type, its scales small and finite."""
    if type_name == "F32":
        return struct.pack("<f", dice.gauss(0, 1))
    if type_name in ("F16", "BF16"):
        half = struct.pack("<f", dice.gauss(0, 1))[2:]
        return half if type_name == "BF16" else struct.pack("<e", dice.gauss(0, 1))
    scales = {"Q4_0": 1, "Q4_1": 2, "Q8_0": 1}[type_name]
    quants = {"Q4_0": 16, "Q4_1": 16, "Q8_0": 32}[type_name]
    head = b"".join(struct.pack("<e", dice.gauss(0, 0.05)) for _ in range(scales))
    return head + dice.randbytes(quants)


def random_tensor(type_name: str, shape: tuple[int, ...], seed: int) -> Written:
    dice = random.Random(seed)
    count = 1
    for size in shape:
        count *= size
    blocks = count // block_values[type_name]
    return Written(shape, type_name, b"".join(block(type_name, dice) for _ in range(blocks)))


def single(number: float) -> float:
    """Round to float32."""
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded


def numbers_of(type_name: str, raw: bytes) -> list[float]:
    """Decode one block, as llama.cpp's dequantize_row_* do."""
    if type_name == "F32":
        return list(struct.unpack("<f", raw))
    if type_name == "F16":
        return list(struct.unpack("<e", raw))
    if type_name == "BF16":
        return list(struct.unpack("<f", b"\0\0" + raw))
    scale = struct.unpack("<e", raw[:2])[0]
    if type_name == "Q8_0":
        return [single(scale * quant) for quant in struct.unpack("<32b", raw[2:])]
    packed = raw[4:] if type_name == "Q4_1" else raw[2:]
    quants = [byte & 15 for byte in packed] + [byte >> 4 for byte in packed]
    if type_name == "Q4_0":
        return [single(scale * (quant - 8)) for quant in quants]
    least = struct.unpack("<e", raw[2:4])[0]
    return [single(single(scale * quant) + least) for quant in quants]


def tiny_tokens() -> list[str]:
    """A byte-level vocabulary: two control tokens, then every byte, then two merged words."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return ["<|end|>", "<|user|>", *(letters[byte] for byte in range(256)), "he", "Ġhe"]


TEMPLATE = "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}<|end|>"


def tiny_metadata(**changes: Any) -> dict[str, Any]:
    """A llama of 2 layers, 4 heads and 2 key heads of 16; `changes` use "__" for "."."""
    tokens = tiny_tokens()
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.context_length": 128,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, *([1] * (len(tokens) - 2))],
        "tokenizer.ggml.merges": ["h e", "Ġ he"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": TEMPLATE,
    }
    return metadata | {key.replace("__", "."): item for key, item in changes.items()}


def tiny_tensors() -> dict[str, Written]:
    """The tensors of `tiny_metadata`, each storage type at least once."""
    vocabulary = len(tiny_tokens())
    tensors = {
        "token_embd.weight": random_tensor("Q8_0", (vocabulary, 64), 1),
        "output_norm.weight": random_tensor("F32", (64,), 2),
    }
    for layer in range(2):
        rows = {
            "attn_norm": ("F32", (64,)),
            "attn_q": ("Q4_1", (64, 64)),
            "attn_k": ("Q4_0", (32, 64)),
            "attn_v": ("F16", (32, 64)),
            "attn_output": ("BF16", (64, 64)),
            "ffn_norm": ("F32", (64,)),
            "ffn_gate": ("Q8_0", (96, 64)),
            "ffn_up": ("Q4_1", (96, 64)),
            "ffn_down": ("Q4_1", (64, 96)),
        }
        for index, (part, (type_name, shape)) in enumerate(rows.items()):
            seed = 10 * (layer + 1) + index
            tensors[f"blk.{layer}.{part}.weight"] = random_tensor(type_name, shape, seed)
    return tensors
