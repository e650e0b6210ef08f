"""Writes the model of a GGUF file as a folder that transformers loads.

Weights are written as float32, the exact dequantised values: a Q4_1 number is a product plus a sum
of two halves, which bfloat16 cannot hold, and greedy text in float32 changes when they are rounded.
A bfloat16 model is made by rounding while loading, which gives the same bits either way.

Shards keep the memory of a conversion to one shard; the folder is written in place, so the caller
(`cache.py`) hands in a temporary one.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.numpy import save_file

from ostinato.checkpoints.ggml_types import storage, unsupported_type
from ostinato.checkpoints.gguf import GgufFile
from ostinato.checkpoints.gguf_llama import llama_config, transformers_name, unpermuted
from ostinato.checkpoints.gguf_tokenizer import tokenizer_config, tokenizer_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from ostinato.checkpoints.progress import Progress

SHARD_BYTES = 128 << 20


def convert_gguf(source: Path, folder: Path, progress: Progress) -> None:
    """Write the model in `source` into the existing, empty `folder`.

    Everything that the file may lack is checked before the first weight is written.

    Raises:
        UsageError: OST2001 to OST2004, what is wrong with or unknown about the file.
    """
    with GgufFile(source) as file:
        config = llama_config(file)
        names = {name: transformers_name(file, name) for name in file.tensors}
        _require_known_types(file)
        _write_json(folder / "tokenizer.json", tokenizer_json(file))
        _write_json(folder / "tokenizer_config.json", tokenizer_config(file))
        _write_json(folder / "config.json", config)
        _write_json(folder / "generation_config.json", _generation(config))
        _write_shards(file, names, config, folder, progress)


def _require_known_types(file: GgufFile) -> None:
    for info in file.tensors.values():
        if storage(info.type_name) is None:
            raise unsupported_type(info.type_name, f"tensor {info.name!r} of {file.path.name}")


def _write_shards(
    file: GgufFile, names: dict[str, str], config: dict[str, Any], folder: Path, progress: Progress
) -> None:
    groups = list(_grouped(file))
    total = sum(4 * math.prod(info.shape) for info in file.tensors.values())
    done = 0
    weight_map: dict[str, str] = {}
    for index, group in enumerate(groups, 1):
        shard = f"model-{index:05d}-of-{len(groups):05d}.safetensors"
        weights = {}
        for name in group:
            weights[names[name]] = unpermuted(name, file.array(name), config)
            weight_map[names[name]] = shard
            done += weights[names[name]].nbytes
            progress("converting weights", done / total)
        _write_shard(weights, folder / shard)
    index_json = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index_json)


def _write_shard(weights: dict[str, NDArray[np.float32]], path: Path) -> None:
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:  # how that library words a full disk
        raise OSError(f"{path.name} cannot be written: {error}") from error
    path.chmod(0o644)  # that library makes it private; a cache may be shared


def _grouped(file: GgufFile) -> Iterator[Sequence[str]]:
    """Cut the tensors, in file order, into groups of at most `SHARD_BYTES` (or one tensor)."""
    group: list[str] = []
    size = 0
    for name, info in file.tensors.items():
        nbytes = 4 * math.prod(info.shape)
        if group and size + nbytes > SHARD_BYTES:
            yield group
            group, size = [], 0
        group.append(name)
        size += nbytes
    if group:
        yield group


def _generation(config: dict[str, Any]) -> dict[str, Any]:
    ids = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {key: config[key] for key in ids if key in config}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
