"""Tiny random models of every kind that `accelerate` serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 97
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    # Large enough that greedy text wanders instead of repeating one token.
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_KINDS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_SIZES)),
    "qwen2-mixed": lambda: Qwen2ForCausalLM(
        Qwen2Config(**_SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_SIZES)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=None)),
    "mistral-sliding": lambda: MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=8)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**_GPT2)),
}
KINDS = tuple(_KINDS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", KINDS)


@pytest.fixture
def tiny() -> Callable[..., Any]:
    """Make a tiny model: `tiny("llama")`, `tiny("gpt2", "cuda", attention="eager")`."""

    def make(
        kind: str = "llama", device: torch.device | str = "cpu", *, attention: str = "sdpa"
    ) -> Any:
        torch.manual_seed(1)
        model = _KINDS[kind]().eval().to(device)
        model.set_attn_implementation(attention)
        return model

    return make


@pytest.fixture
def prompt() -> Callable[..., dict[str, torch.Tensor]]:
    """Make a batch of random prompts; row r has `2 * r` columns of padding on its left."""

    def make(
        rows: int = 1, columns: int = 9, device: torch.device | str = "cpu", *, seed: int = 5
    ) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, VOCABULARY, (rows, columns), generator=generator)
        mask = torch.ones_like(ids)
        for row in range(rows):
            mask[row, : 2 * row] = 0
        ids = ids.masked_fill(mask == 0, 0)
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}

    return make
