"""The weight files of a folder: whole, or refused by the name of the file."""

import json
import struct
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from safetensors.torch import save_file

from ostinato.checkpoints.weights import StoredTensor, read_ahead, stored_tensors
from ostinato.errors import UsageError

INDEX = "model.safetensors.index.json"
SHARDS = {
    "model-00001-of-00002.safetensors": {"a": torch.ones(4, 3)},
    "model-00002-of-00002.safetensors": {
        "b": torch.ones(5, dtype=torch.bfloat16),
        "c": torch.tensor(1),
    },
}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    for shard, tensors in SHARDS.items():
        save_file(tensors, tmp_path / shard)
    weight_map = {name: shard for shard, tensors in SHARDS.items() for name in tensors}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def refusal(folder: Path, code: str) -> str:
    with pytest.raises(UsageError) as caught:
        stored_tensors(folder)
    assert caught.value.code == code
    return str(caught.value)


def test_shards_are_read_as_one_model(sharded: Path) -> None:
    assert stored_tensors(sharded) == {
        "a": StoredTensor("F32", 12),
        "b": StoredTensor("BF16", 5),
        "c": StoredTensor("I64", 1),
    }


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert stored_tensors(tmp_path) == {"a": StoredTensor("F32", 2)}


def test_only_floating_numbers_change_size_with_the_number_type() -> None:
    assert StoredTensor("BF16", 10).bytes_as(4) == 40
    assert StoredTensor("BF16", 10).bytes_as(None) == 20
    assert StoredTensor("I64", 10).bytes_as(4) == 80


def test_a_folder_without_weights_says_what_would_be_taken(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    assert "neither model.safetensors nor" in refusal(tmp_path, "OST2021")


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    problem = refusal(sharded, "OST2022")
    assert "lacks 1 of its 2 weight files: model-00002-of-00002.safetensors" in problem


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"weight_map": {"a": 3}}', '{"weight_map": []}'])
def test_an_index_that_is_none_is_named(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    assert f"{INDEX} is corrupt: it is no index of shards" in refusal(sharded, "OST2023")


def test_an_index_that_names_a_tensor_its_shard_lacks_is_refused(sharded: Path) -> None:
    weight_map = {"a": "model-00002-of-00002.safetensors"}
    (sharded / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert "lacks the tensor 'a' that the index names" in refusal(sharded, "OST2023")


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(2, 3)}, file)
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert "model.safetensors is corrupt" in refusal(tmp_path, "OST2023")


@pytest.mark.parametrize(
    "header",
    [b"not json", b"[]", b'{"a": 1}', b'{"a": {"dtype": "F32", "shape": [1]}}', b"\xff\xff"],
)
def test_a_header_that_is_not_readable_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "its header is not readable" in refusal(tmp_path, "OST2023")


def test_a_header_that_claims_more_than_the_file_is_refused_before_it_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    assert f"its header of {1 << 62} bytes does not fit its 10 bytes" in refusal(
        tmp_path, "OST2023"
    )


def test_reading_ahead_reads_every_byte_of_every_shard(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int] = {}
    plain = Path.open

    def opened(path: Path, *args: Any, **kwargs: Any) -> Any:
        file = plain(path, *args, **kwargs)
        if path.suffix != ".safetensors":
            return file

        class Counted:
            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def readinto(self, room: bytearray) -> int:
                count = int(file.readinto(room))
                seen[path.name] = seen.get(path.name, 0) + count
                return count

        return Counted()

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr("ostinato.checkpoints.weights._READ_BYTES", 16)  # many pieces
    read_ahead(sharded)
    assert seen == {name: (sharded / name).stat().st_size for name in SHARDS}


def test_a_file_that_cannot_be_read_is_one_error_with_its_name(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.open

    def opened(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name.startswith("model-00002"):
            raise PermissionError(13, "Permission denied")
        return plain(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", opened)
    text = refusal(sharded, "OST2023")
    assert "model-00002-of-00002.safetensors cannot be read: Permission denied" in text
    with pytest.raises(UsageError, match="cannot be read"):
        read_ahead(sharded)


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": [-2]},
        {"shape": "x"},
        {"shape": [2.0]},
        {"shape": [3]},
        {"shape": 2},
        {"dtype": 5},
        {"data_offsets": [8, 0]},
        {"data_offsets": [0, float("inf")]},
        {"data_offsets": [0]},
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_is_refused(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}
    header = json.dumps({"a": entry}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(content)
    assert "its header is not readable" in refusal(tmp_path, "OST2023")
