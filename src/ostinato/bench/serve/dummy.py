"""A folder that a server can start from without weights: a model's dimensions and a tokenizer.

The tokenizer is made up, as large as the model's vocabulary, and each of its tokens is a short
word: so the server has as much to turn into text as with a real one, and every token shows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SPACE = "\u0120"  # how byte-level tokenizers write the space before a word


def write_folder(folder: Path, config: Mapping[str, Any]) -> Path:
    """Write `config` and a tokenizer for it into `folder`; return that."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    inner = tokenizers.Tokenizer(
        models.BPE(vocab=_vocabulary(int(config["vocab_size"])), merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template}), encoding="utf-8"
    )
    return folder


def _vocabulary(size: int) -> dict[str, int]:
    from tokenizers import pre_tokenizers

    words = sorted(pre_tokenizers.ByteLevel.alphabet())[:size]
    known, chance = set(words), random.Random(0)
    while len(words) < size:
        word = _SPACE + "".join(chance.choices(_LETTERS, k=chance.randint(2, 7)))
        if word not in known:
            known.add(word)
            words.append(word)
    return {word: number for number, word in enumerate(words)}
