"""What a folder says of its encoder, as far as a front end must know it. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.errors import UsageError

_SHORTEST = 16
_MANY = 1 << 20
_OFFSET_MODELS = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""These count positions from behind the padding token's, so they have two fewer."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One encoder.

    Attributes:
        max_tokens: Of one text, special tokens included.
        lengths: Recorded ones; a text is padded up to the next.
        pad_id: The token that padding is made of.
    """

    name: str
    dimensions: int
    vocabulary: int
    max_tokens: int
    lengths: tuple[int, ...]
    pad_id: int

    def length_for(self, tokens: int) -> int:
        """Return the recorded length that a text of so many tokens is padded to."""
        return next(length for length in self.lengths if length >= tokens)


def read_facts(folder: Path, name: str | None = None) -> Facts:
    """Read a folder.

    Raises:
        UsageError: OST6062, it is no folder of an encoder.
    """
    config = _read(folder / "config.json")
    limits = _read(folder / "sentence_bert_config.json", is_needed=False)
    try:
        positions = int(config["max_position_embeddings"])
        if config.get("model_type") in _OFFSET_MODELS:
            positions -= 2
        most = min(positions, int(limits.get("max_seq_length") or _MANY))
        return Facts(
            name or folder.resolve().name,
            int(config["hidden_size"]),
            int(config["vocab_size"]),
            most,
            lengths_up_to(most),
            int(config.get("pad_token_id") or 0),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unfit(f"{folder / 'config.json'} is of no encoder: {error!r}") from error


def lengths_up_to(most: int) -> tuple[int, ...]:
    """Return lengths that double, and `most` itself."""
    lengths, length = [], _SHORTEST
    while length < most:
        lengths.append(length)
        length *= 2
    return (*lengths, most)


def _read(file: Path, *, is_needed: bool = True) -> Mapping[str, Any]:
    if not is_needed and not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unfit(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise _unfit(f"{file} holds no object")
    return found


def _unfit(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST6062",
        remedy="name a folder of an encoder with its tokenizer.json, such as ./all-MiniLM-L6-v2",
    )
