"""Conversion: a GGUF file becomes a folder that transformers loads, with the exact numbers."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from checkpoints.written_gguf import (
    Written,
    tiny_metadata,
    tiny_tensors,
    write_gguf,
)
from ostinato.checkpoints import GgufFile, convert
from ostinato.checkpoints.convert import convert_gguf
from ostinato.checkpoints.progress import silent
from ostinato.errors import UsageError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", tiny_metadata(), tiny_tensors())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_transformers_loads_the_folder_with_every_weight(source: Path, folder: Path) -> None:
    convert_gguf(source, folder, silent)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.dtype == torch.float32
    assert model.config.rope_parameters["rope_theta"] == 10000.0
    assert model.generation_config.eos_token_id == 0
    with GgufFile(source) as file:
        embeddings = torch.from_numpy(file.array("token_embd.weight"))
        down = torch.from_numpy(file.array("blk.1.ffn_down.weight"))
    assert torch.equal(model.model.embed_tokens.weight, embeddings)
    assert torch.equal(model.model.layers[1].mlp.down_proj.weight, down)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_query_rows_are_put_back_in_transformers_order(source: Path, folder: Path) -> None:
    convert_gguf(source, folder, silent)
    written = load_file(folder / "model-00001-of-00001.safetensors")
    query = written["model.layers.0.self_attn.q_proj.weight"]
    with GgufFile(source) as file:
        stored = torch.from_numpy(file.array("blk.0.attn_q.weight"))
    # The second row of a head is the second pair's first half: it was stored as the third.
    assert torch.equal(query[1], stored[2])
    assert torch.equal(query[8], stored[1])


def test_the_tokenizer_keeps_its_split_rule_through_transformers(
    source: Path, folder: Path
) -> None:
    convert_gguf(source, folder, silent)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert tokenizer.tokenize("x  12") == ["x", "Ġ", "Ġ", "1", "2"]
    assert "Digits" in str(tokenizer.backend_tokenizer.pre_tokenizer)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|user|>", "<|end|>")


def test_shards_stay_below_their_size_and_the_index_finds_every_tensor(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "SHARD_BYTES", 40_000)
    convert_gguf(source, folder, silent)
    shards = sorted(folder.glob("*.safetensors"))
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(shards) > 2
    assert {path.name for path in shards} == set(index["weight_map"].values())
    for name, shard in index["weight_map"].items():
        assert name in load_file(folder / shard)
    # One tensor may be larger than a shard; several together may not.
    assert all(path.stat().st_size < 45_000 or len(load_file(path)) == 1 for path in shards)


def test_progress_ends_at_one(source: Path, folder: Path) -> None:
    told: list[float] = []
    convert_gguf(source, folder, lambda what, fraction: told.append(fraction))
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) == len(tiny_tensors())


def test_files_can_be_read_by_everyone_who_may_read_the_folder(source: Path, folder: Path) -> None:
    convert_gguf(source, folder, silent)
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in folder.glob("*.safetensors"))


def test_an_unknown_storage_type_is_refused_before_anything_is_written(
    tmp_path: Path, folder: Path
) -> None:
    tensors = tiny_tensors() | {"output.weight": Written((260, 256), "Q4_K", b"\0" * 144 * 260)}
    source = write_gguf(tmp_path / "k.gguf", tiny_metadata(), tensors)
    with pytest.raises(UsageError, match=r"'output\.weight' of k\.gguf is stored as Q4_K"):
        convert_gguf(source, folder, silent)
    assert list(folder.iterdir()) == []


def test_a_shard_that_cannot_be_written_is_an_os_error_like_any_other(
    source: Path, folder: Path
) -> None:
    shard = "model-00001-of-00001.safetensors"
    (folder / shard).mkdir()  # in the way
    with pytest.raises(OSError, match=f"{shard} cannot be written"):
        convert_gguf(source, folder, silent)
