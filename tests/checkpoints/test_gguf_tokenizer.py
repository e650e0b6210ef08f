"""The tokenizer of a GGUF file: its vocabulary, its special tokens and how it splits text."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from checkpoints.written_gguf import TEMPLATE, tiny_metadata, tiny_tensors, write_gguf
from ostinato.checkpoints import GgufFile
from ostinato.checkpoints.gguf_tokenizer import tokenizer_config, tokenizer_json
from ostinato.errors import UsageError


def open_tiny(path: Path, **changes: Any) -> GgufFile:
    return GgufFile(write_gguf(path / "m.gguf", tiny_metadata(**changes), tiny_tensors()))


def tokenizer_of(file: GgufFile) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer_json(file)))


def pieces(path: Path, text: str, split: str) -> list[str]:
    with open_tiny(path, tokenizer__ggml__pre=split) as file:
        tokenizer = tokenizer_of(file)
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def test_words_merge_and_special_tokens_stay_whole(tmp_path: Path) -> None:
    with open_tiny(tmp_path) as file:
        tokenizer = tokenizer_of(file)
    assert tokenizer.encode("<|user|>he he").tokens == ["<|user|>", "he", "Ġhe"]


def test_a_text_is_opened_where_the_file_asks_for_it(tmp_path: Path) -> None:
    with open_tiny(tmp_path, tokenizer__ggml__add_bos_token=True) as file:
        tokenizer = tokenizer_of(file)
    assert tokenizer.encode("he").tokens == ["<|user|>", "he"]
    assert tokenizer.encode("he", add_special_tokens=False).tokens == ["he"]


@pytest.mark.parametrize("text", ["naïve\n\t 12 €  ", "日本", "a\x00b"])
def test_any_text_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    with open_tiny(tmp_path) as file:
        tokenizer = tokenizer_of(file)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_smollm_splits_single_digits_off_before_anything_else(tmp_path: Path) -> None:
    assert pieces(tmp_path, "x  12", "smollm") == ["x", "ĠĠ", "1", "2"]


def test_gpt2_keeps_numbers_whole_with_the_space_before_them(tmp_path: Path) -> None:
    assert pieces(tmp_path, "x  12", "gpt-2") == ["x", "Ġ", "Ġ12"]


def test_the_config_holds_special_tokens_and_template(tmp_path: Path) -> None:
    with open_tiny(tmp_path) as file:
        config = tokenizer_config(file)
    assert config["bos_token"] == "<|user|>"
    assert config["eos_token"] == "<|end|>"
    assert "pad_token" not in config
    assert config["chat_template"] == TEMPLATE
    assert config["model_max_length"] == 128


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer__ggml__model": "llama"}, "kind 'llama' with the split rule 'smollm'"),
        ({"tokenizer__ggml__pre": "tekken"}, "kind 'gpt2' with the split rule 'tekken'"),
        ({"tokenizer__ggml__merges": 3}, "a missing or empty tokenizer.ggml.merges"),
        ({"tokenizer__ggml__add_eos_token": True}, "ends every text with a token"),
        (
            {"tokenizer__ggml__add_bos_token": True, "tokenizer__ggml__bos_token_id": 999},
            "the token 999, which is none",
        ),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with open_tiny(tmp_path, **change) as file, pytest.raises(UsageError) as caught:
        tokenizer_json(file)
    assert caught.value.code == "OST2004"
    assert words in str(caught.value)
