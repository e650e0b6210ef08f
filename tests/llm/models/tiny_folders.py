"""Tiny random checkpoints of every family, written by transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

VOCABULARY = 96
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 3.0}
# The largest position is given by the two, as transformers wants it to be.
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 64,
}


def _llama(**more: Any) -> transformers.PretrainedConfig:
    return transformers.LlamaConfig(**(_SIZES | more))


def _qwen3(**more: Any) -> transformers.PretrainedConfig:
    return transformers.Qwen3Config(**(_SIZES | {"head_dim": 32} | more))


def _gpt2(**more: Any) -> transformers.PretrainedConfig:
    sizes = {"vocab_size": VOCABULARY, "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}
    return transformers.GPT2Config(**(sizes | {"bos_token_id": 1, "eos_token_id": 2} | more))


FAMILIES: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "llama": _llama,
    "llama-tied-llama3-rope": lambda: _llama(tie_word_embeddings=True, rope_parameters=_LLAMA3),
    "llama-biased-linear-rope": lambda: _llama(
        attention_bias=True, mlp_bias=True, rope_parameters=_LINEAR, head_dim=32
    ),
    "llama-yarn": lambda: _llama(rope_parameters=_YARN),
    "llama-one-kv-head": lambda: _llama(num_key_value_heads=1),
    "mistral-windowed": lambda: transformers.MistralConfig(**(_SIZES | {"sliding_window": 20})),
    "mistral": lambda: transformers.MistralConfig(**(_SIZES | {"sliding_window": None})),
    "qwen2": lambda: transformers.Qwen2Config(**_SIZES),
    "qwen2-half-windowed": lambda: transformers.Qwen2Config(
        **_SIZES, use_sliding_window=True, sliding_window=17, max_window_layers=1
    ),
    "qwen3": _qwen3,
    "qwen3-yarn": lambda: _qwen3(
        rope_parameters=_YARN
        | {"attention_factor": 0.8, "beta_fast": 9.0, "beta_slow": 2.0, "truncate": False}
    ),
    "qwen3-tied": lambda: _qwen3(tie_word_embeddings=True),
    "gpt2": _gpt2,
    "gpt2-untied-scaled": lambda: _gpt2(
        tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True, n_inner=96
    ),
}


_HEAD = {"head_dim": 16}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

# Architectures that the engine has no code of its own for.
FOREIGN: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **_SIZES | _HEAD,
        sliding_window=20,
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=9,
    ),
    "phi3": lambda: transformers.Phi3Config(**_SIZES, sliding_window=18),
    "stablelm": lambda: transformers.StableLmConfig(**_SIZES, use_qkv_bias=True),
    "gpt-neox": lambda: transformers.GPTNeoXConfig(**_SIZES),
    "olmo2": lambda: transformers.Olmo2Config(**_SIZES),
    "granite": lambda: transformers.GraniteConfig(
        **_SIZES, logits_scaling=3.0, attention_multiplier=0.3, residual_multiplier=0.5
    ),
    "opt": lambda: transformers.OPTConfig(
        **_SIZES | {"ffn_dim": 128, "word_embed_proj_dim": 64, "tie_word_embeddings": True}
    ),
    "qwen3-experts": lambda: transformers.Qwen3MoeConfig(**_SIZES | _HEAD | _EXPERTS),
}


def write(name: str, folder: Path) -> transformers.PreTrainedModel:
    """Write the family's checkpoint in several shards; return the model that was saved."""
    torch.manual_seed(len(name))
    config = (FAMILIES | FOREIGN)[name]()
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    # Larger than a fresh model's: with near-zero weights, wrong attention would go unseen.
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn_like(weight)
            weight.copy_(noise * 0.2 if weight.ndim > 1 else weight + noise * 0.2)
    model.save_pretrained(folder, max_shard_size="100KB")
    return model
