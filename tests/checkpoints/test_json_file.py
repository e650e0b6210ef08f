"""JSON of others: a value, or a `ValueError`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoints.tiny_models import write_tiny_llama
from ostinato.checkpoints.folder import load_folder
from ostinato.checkpoints.json_file import parse_json, read_json
from ostinato.errors import UsageError
from ostinato.llm import Engine, EngineConfig

DEEP = "[" * 200_000


def test_what_is_json_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"a": [1, "ä"]}), encoding="utf-8")
    assert read_json(file) == parse_json(file.read_bytes()) == {"a": [1, "ä"]}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", DEEP.encode()], ids=range(4))
def test_what_is_none_is_a_value_error(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r".+"):
        read_json(file)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "model.safetensors.index.json"]
)
def test_a_folder_with_json_nested_without_end_is_one_error(name: str, tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path)
    (folder / name).write_text(DEEP)
    with pytest.raises(UsageError, match="nested too deep"):
        Engine(EngineConfig(model=folder, device="cpu"))
    if name != "generation_config.json":
        with pytest.raises(UsageError, match="nested too deep"):
            load_folder(folder, device="cpu")
