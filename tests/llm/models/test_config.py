"""Config: what config.json says is followed or refused, never skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from llm.models.tiny_folders import FAMILIES
from ostinato.errors import UsageError
from ostinato.llm.models import DecoderConfig, read_config
from ostinato.llm.models.rope import Llama3Scaling, Rope

# As Llama-3.2-1B has it, in the spelling of transformers 4.
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "eos_token_id": [128001, 128008, 128009],
}


def test_the_spelling_of_transformers_4_is_read() -> None:
    config = DecoderConfig.from_dict(LLAMA)
    assert config.rope == Rope(500000.0, llama3=Llama3Scaling(32.0, 1.0, 4.0, 8192))
    assert (config.layers, config.attention.group, config.stored_dtype) == (16, 4, "bfloat16")
    assert config.is_tied
    assert config.eos_token_ids == (128001, 128008, 128009)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_itself_writes_is_read_alike_in_full_and_as_a_difference(
    family: str,
) -> None:
    theirs = FAMILIES[family]()
    full = DecoderConfig.from_dict(json.loads(json.dumps(theirs.to_dict())))
    assert full == DecoderConfig.from_dict(json.loads(theirs.to_json_string(use_diff=True)))
    assert full.is_tied == theirs.tie_word_embeddings


@pytest.mark.parametrize(
    "kind", [transformers.LlamaConfig, transformers.MistralConfig, transformers.Qwen2Config,
             transformers.Qwen3Config, transformers.GPT2Config]
)  # fmt: skip
def test_what_a_config_leaves_out_is_what_transformers_takes_it_for(kind: Any) -> None:
    theirs = kind()
    gpt2 = kind is transformers.GPT2Config
    needed = (
        ("vocab_size", "n_embd", "n_layer", "n_head", "n_positions")
        if gpt2
        else ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
              "intermediate_size", "max_position_embeddings")
    )  # fmt: skip
    short = {key: getattr(theirs, key) for key in needed} | {"model_type": theirs.model_type}
    mine, full = DecoderConfig.from_dict(short), DecoderConfig.from_dict(theirs.to_dict())
    different = {
        name for name in DecoderConfig.__slots__ if getattr(mine, name) != getattr(full, name)
    }
    # The number of key-value heads differs by class, and transformers always writes it.
    assert different <= {"stored_dtype", "eos_token_ids", "kv_heads"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"num_hidden_layers": "16"}, "num_hidden_layers is '16'"),
        ({"num_attention_heads": 0}, "at least 1"),
        ({"num_key_value_heads": 7}, "not a multiple of 7"),
        ({"rms_norm_eps": -1.0}, "positive number"),
        ({"hidden_act": "mish"}, "hidden_act = 'mish'"),
        ({"hidden_act": 3}, "not a string"),
        ({"tie_word_embeddings": "yes"}, "neither true nor false"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope_type 'dynamic'"),
        ({"rope_scaling": {"type": "yarn", "factor": "4"}}, "factor is '4'"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 1}},
            "mscale_all_dim",
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "lacks low_freq_factor"),
        ({"rope_scaling": [8]}, "not an object"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"model_type": "qwen2", "layer_types": ["chunked_attention"] * 16}, "layer_types"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_a_value_that_cannot_be_followed_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        DecoderConfig.from_dict(LLAMA | change)
    assert caught.value.code == "OST5202"


@pytest.mark.parametrize("change", [{"n_head": 5}, {"add_cross_attention": True}])
def test_a_gpt2_that_cannot_be_followed_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        DecoderConfig.from_dict(transformers.GPT2Config().to_dict() | change)
    assert caught.value.code == "OST5202"


def test_a_windowed_qwen_without_layer_types_sees_all_in_its_first_layers() -> None:
    windowed = {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 64,
        "max_window_layers": 14,
    }
    assert DecoderConfig.from_dict(LLAMA | windowed).windows == (None,) * 14 + (64,) * 2
    unused = LLAMA | windowed | {"use_sliding_window": False}
    assert DecoderConfig.from_dict(unused).windows == (None,) * 16


def test_an_architecture_that_transformers_does_not_have_either_is_refused() -> None:
    with pytest.raises(UsageError, match=r"nor transformers .* 'bert2'") as caught:
        DecoderConfig.from_dict({"model_type": "bert2"})
    assert caught.value.code == "OST5201"


@pytest.mark.parametrize(
    ("text", "code"), [(None, "OST2021"), ("{", "OST2021"), ("[]", "OST2021"), ("{}", "OST2021")]
)
def test_a_folder_without_a_readable_config_is_refused(
    tmp_path: Path, text: str | None, code: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_config(tmp_path)
    assert caught.value.code == code


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist") as caught:
        read_config(tmp_path / "nowhere")
    assert caught.value.code == "OST2020"
