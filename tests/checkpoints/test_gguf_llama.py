"""The llama architecture of a GGUF file in transformers' words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.written_gguf import random_tensor, tiny_metadata, tiny_tensors, write_gguf
from ostinato.checkpoints import GgufFile
from ostinato.checkpoints.gguf_llama import llama_config, transformers_name, unpermuted
from ostinato.errors import UsageError


def config_of(path: Path, **changes: Any) -> dict[str, Any]:
    write_gguf(path / "m.gguf", tiny_metadata(**changes), tiny_tensors())
    with GgufFile(path / "m.gguf") as file:
        return llama_config(file)


def refusal(path: Path, **changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        config_of(path, **changes)
    assert caught.value.code == "OST2003"
    return str(caught.value)


def test_the_numbers_of_the_file_become_those_of_the_config(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    expected = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "rope_theta": 10000.0,
        "vocab_size": 260,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 0,
    }
    assert {key: config[key] for key in expected} == expected
    assert "pad_token_id" not in config


def test_the_rounding_of_a_number_to_float32_is_undone(tmp_path: Path) -> None:
    assert config_of(tmp_path)["rms_norm_eps"] == 1e-5


def test_a_file_with_an_output_tensor_has_untied_embeddings(tmp_path: Path) -> None:
    tensors = tiny_tensors() | {"output.weight": random_tensor("F16", (260, 64), 3)}
    path = write_gguf(tmp_path / "m.gguf", tiny_metadata(), tensors)
    with GgufFile(path) as file:
        assert llama_config(file)["tie_word_embeddings"] is False
        assert transformers_name(file, "output.weight") == "lm_head.weight"


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    assert "'qwen2', and only 'llama' is known" in refusal(tmp_path, general__architecture="qwen2")


def test_rotary_scaling_is_refused(tmp_path: Path) -> None:
    problem = refusal(tmp_path, llama__rope__scaling__type="yarn")
    assert "scales its rotary positions ('yarn')" in problem


@pytest.mark.parametrize("value", [0, "many"])
def test_a_number_that_makes_no_sense_is_named(tmp_path: Path, value: object) -> None:
    problem = refusal(tmp_path, llama__block_count=value)
    assert f"its llama.block_count is {value!r}" in problem


def test_a_file_without_embeddings_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_metadata(), {})
    with GgufFile(path) as file, pytest.raises(UsageError, match=r"no tensor 'token_embd\.weight'"):
        llama_config(file)


@pytest.mark.parametrize(
    "name", ["rope_freqs.weight", "blk.0.ffn_gate_exps.weight", "blk.0.attn_q.bias"]
)
def test_a_tensor_without_a_place_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_metadata(), tiny_tensors())
    with GgufFile(path) as file, pytest.raises(UsageError, match=f"{name}' has no place"):
        transformers_name(file, name)


@pytest.mark.parametrize(
    ("name", "heads"), [("blk.1.attn_q.weight", 4), ("blk.1.attn_k.weight", 2)]
)
def test_query_and_key_rows_return_to_where_they_were_before_llama_cpp(
    name: str, heads: int
) -> None:
    config = {"num_attention_heads": 4, "num_key_value_heads": 2}
    original = np.arange(heads * 16 * 8, dtype=np.float32).reshape(heads * 16, 8)
    # llama.cpp's convert_hf_to_gguf.py, LlamaModel.permute.
    permuted = original.reshape(heads, 2, 8, 8).swapaxes(1, 2).reshape(original.shape)
    assert not np.array_equal(permuted, original)
    assert np.array_equal(unpermuted(name, permuted, config), original)


def test_other_weights_are_left_alone() -> None:
    weight = np.ones((4, 4), dtype=np.float32)
    assert (
        unpermuted(
            "blk.1.attn_v.weight",
            weight,
            {
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
            },
        )
        is weight
    )
