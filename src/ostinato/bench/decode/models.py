"""The models whose dimensions are measured, as transformers' config.json describes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_LLAMA = MappingProxyType(
    {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }
)


def _llama(
    vocabulary: int,
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    kv_heads: int,
    theta: float,
    *,
    is_tied: bool,
) -> Mapping[str, Any]:
    return {
        **_LLAMA,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rope_theta": theta,
        "tie_word_embeddings": is_tied,
    }


MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "llama3-8b": _llama(128256, 4096, 14336, 32, 32, 8, 5e5, is_tied=False),
        "llama3.2-1b": _llama(128256, 2048, 8192, 16, 32, 8, 5e5, is_tied=True),
        "smollm2-135m": _llama(49152, 576, 1536, 30, 9, 3, 1e5, is_tied=True),
    }
)
"""By name, in the order of their size."""

TINY = _llama(512, 64, 128, 2, 4, 2, 1e4, is_tied=True)
"""Stands in for each of them where only the program is tried."""
