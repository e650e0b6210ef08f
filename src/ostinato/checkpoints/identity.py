"""What a model is, whatever its folder is called: a digest of the files that decide its answers."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ostinato.checkpoints.smollm2 import NAME

_DECIDING = frozenset({".safetensors", ".json", ".jinja", ".model", ".txt"})
"""Weights, configs, templates and tokenizers, in every form in which transformers writes them."""
_READERS = 4


def digest_of(model: str) -> str:
    """Return the name of a model that this package knows, or a digest of a folder's files.

    A folder is read whole, some gigabytes a second; a copy of it has the same digest, and one whose
    weights, tokenizer or template changed has another. What cannot be read is the model's own
    name: whoever loads it says what is wrong.
    """
    if model == NAME:
        return model
    try:
        files = sorted(each for each in Path(model).iterdir() if each.suffix in _DECIDING)
        with ThreadPoolExecutor(_READERS) as readers:
            parts = list(readers.map(_digest_of_file, files))
    except OSError:
        return model
    whole = hashlib.sha256()
    for file, part in zip(files, parts, strict=True):
        whole.update(f"{file.name}\n{part}\n".encode(errors="surrogateescape"))
    return whole.hexdigest() if files else model


def _digest_of_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
