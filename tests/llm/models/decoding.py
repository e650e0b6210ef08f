"""Rows that decode on a GPU, with layers of real models' sizes, fused or composable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ostinato.llm.attention import DecodeAttend, choose
from ostinato.llm.kv.store import KvStore
from ostinato.llm.models import DecoderConfig, build
from ostinato.llm.models.llama import LlamaDecoder

PAGE_TOKENS, STEPS = 16, 64
_LLAMA: Mapping[str, Any] = {
    "model_type": "llama",
    "vocab_size": 1024,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "num_hidden_layers": 3,
}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "8b": _LLAMA
    | {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "1b": _LLAMA
    | {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "135m": _LLAMA
    | {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "qwen2": _LLAMA
    | {
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "qwen3": _LLAMA
    | {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "odd": _LLAMA
    | {
        "hidden_size": 80 * 5,
        "intermediate_size": 1104,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "attention_bias": True,
        "mlp_bias": True,
    },
}


class Decoding:
    """Rows that decode greedily, each from its own length on."""

    def __init__(self, name: str, lengths: list[int], quantize: Any = "none") -> None:
        device = torch.device("cuda:0")
        config = DecoderConfig.from_dict(SIZES[name])
        decoder = build(
            config, dtype=torch.bfloat16, device=device, load="dummy", quantize=quantize
        )
        assert isinstance(decoder, LlamaDecoder)
        assert decoder.fused is not None, decoder.decode_path
        self.decoder = decoder
        self.backend: Any
        self.backend, _ = choose(config.attention, device=device, dtype=torch.bfloat16)
        counts = [-(-(length + STEPS) // PAGE_TOKENS) for length in lengths]
        free = torch.randperm(sum(counts)) + 1
        shape = (config.layers, sum(counts) + 1, PAGE_TOKENS, config.kv_heads, config.head_dim)
        self.store = KvStore(*shape, torch.bfloat16, device)
        self.store.keys.normal_()
        self.store.values.normal_()
        self.kept = self.store.keys.clone(), self.store.values.clone()
        pages = torch.full((len(lengths), max(counts)), 2**30, dtype=torch.int32)
        for row, own in enumerate(free.split(counts)):
            pages[row, : len(own)] = own
        self.pages_BP = pages.to(device)
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=device)
        self.lengths_B = self.lengths.clone()
        self.tokens = torch.randint(0, config.vocabulary, (len(lengths),), device=device)
        self.tokens_B = self.tokens.clone()

    def begin(self) -> None:
        """Go back to where it began."""
        for kept, tensor in zip(self.kept, (self.store.keys, self.store.values), strict=True):
            tensor.copy_(kept)
        self.lengths_B.copy_(self.lengths)
        self.tokens_B.copy_(self.tokens)

    def hidden(self) -> Tensor:
        """Decode one token of each row."""
        positions_B = (self.lengths_B - 1).clamp(min=0).long()
        slots_B = self.store.slots_at(self.pages_BP, positions_B, self.lengths_B)
        attend = DecodeAttend(self.backend, self.store, self.pages_BP, self.lengths_B)
        return self.decoder.decode(self.tokens_B, positions_B, slots_B, attend)

    def step(self) -> None:
        """Decode, and go on with the likeliest token."""
        self.tokens_B.copy_(self.decoder.logits(self.hidden()).argmax(-1))
        self.lengths_B.add_(self.lengths_B > 0)

    def launch(self, is_early: bool) -> None:
        """Let kernels begin before the ones ahead have ended, or not."""
        assert self.decoder.fused is not None
        self.decoder.fused = replace(self.decoder.fused, is_early=is_early)
        self.backend = replace(self.backend, is_early=is_early)


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def lengths_of(rows: int, longest: int) -> list[int]:
    lengths = torch.randint(0, longest + 1, (rows,)).tolist()
    lengths[0] = longest
    return lengths


def assert_exact(decoding: Decoding) -> None:
    """Compare with the composable layers in float32, and with how far those in bfloat16 are."""
    is_there = decoding.lengths_B > 0
    found = decoding.hidden()[is_there].clone()
    fused, decoding.decoder.fused = decoding.decoder.fused, None
    decoding.begin()
    rounded = decoding.hidden()[is_there].clone()
    # The weights as they are, computed with exactly.
    decoding.decoder.float()
    wide = KvStore(1, 1, 1, 1, 1, torch.float32, decoding.lengths_B.device)
    wide.keys, wide.values = (kept.float() for kept in decoding.kept)
    wide.page_tokens = PAGE_TOKENS
    decoding.store = wide
    config = decoding.decoder.config
    decoding.backend, _ = choose(
        config.attention, device=wide.keys.device, dtype=torch.float32, wanted="sdpa"
    )
    exact = decoding.hidden()[is_there]
    decoding.decoder.fused = fused
    assert apart(found, exact) < 1.3 * apart(rounded, exact) + 1e-3
