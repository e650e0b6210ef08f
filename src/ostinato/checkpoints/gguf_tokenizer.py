"""The tokenizer inside a GGUF file, as the `tokenizer.json` it came from.

A GGUF file keeps the vocabulary, the merges and the *name* of the rule that splits text before the
merges. transformers' own conversion ignores the name "smollm" and splits as GPT-2 does, so numbers
after spaces or line breaks get other ids than the model was trained on; here every known name has
its rule, and an unknown name is refused instead of guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostinato.errors import UsageError

if TYPE_CHECKING:
    from ostinato.checkpoints.gguf import GgufFile

_CONTROL, _USER_DEFINED = 3, 4
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_SPLITS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
}


def tokenizer_json(file: GgufFile) -> dict[str, Any]:
    """Return the content of `tokenizer.json`, as the `tokenizers` package reads it.

    Raises:
        UsageError: OST2004, the file's tokenizer is of a kind that is not known here.
    """
    kind = file.metadata.get("tokenizer.ggml.model")
    split = file.metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or split not in _SPLITS:
        raise _unsupported(file, f"kind {kind!r} with the split rule {split!r}")
    if file.metadata.get("tokenizer.ggml.add_eos_token"):
        raise _unsupported(file, "it ends every text with a token")
    tokens = _strings(file, "tokenizer.ggml.tokens")
    merges = _strings(file, "tokenizer.ggml.merges")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(file, tokens),
        "normalizer": None,
        "pre_tokenizer": _SPLITS[split],
        "post_processor": _opening(file, tokens),
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`: special tokens and the chat template."""
    tokens = _strings(file, "tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        # Not GPT2Tokenizer: that class rebuilds the split rule and would lose the digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.metadata.get("llama.context_length"),
    }
    for name, key in (
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ):
        token_id = file.metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(token_id, int) and token_id < len(tokens):
            config[name] = tokens[token_id]
    if "tokenizer.chat_template" in file.metadata:
        config["chat_template"] = file.metadata["tokenizer.chat_template"]
    return config


def _added_tokens(file: GgufFile, tokens: list[str]) -> list[dict[str, Any]]:
    kinds = file.metadata.get("tokenizer.ggml.token_type", [])
    return [
        {
            "id": index,
            "content": tokens[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for index, kind in enumerate(kinds[: len(tokens)])
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _opening(file: GgufFile, tokens: list[str]) -> dict[str, Any] | None:
    """Return the rule that puts the opening token before a text, if the file asks for it."""
    index = file.metadata.get("tokenizer.ggml.bos_token_id")
    if not file.metadata.get("tokenizer.ggml.add_bos_token"):
        return None
    if not isinstance(index, int) or index >= len(tokens):
        raise _unsupported(file, f"it opens every text with the token {index!r}, which is none")
    opening = {"SpecialToken": {"id": tokens[index], "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [opening, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            opening,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 0}},
        ],
        "special_tokens": {
            tokens[index]: {"id": tokens[index], "ids": [index], "tokens": [tokens[index]]}
        },
    }


def _strings(file: GgufFile, key: str) -> list[str]:
    value = file.metadata.get(key)
    if not isinstance(value, list) or not value:
        raise _unsupported(file, f"a missing or empty {key}")
    return value


def _unsupported(file: GgufFile, what: str) -> UsageError:
    return UsageError(
        f"{file.path.name} holds a tokenizer that cannot be converted: {what}",
        code="OST2004",
        remedy="use the safetensors folder of the same model: ostinato run --model DIR",
    )
