"""Llama and its relatives: Llama 2 and 3, SmolLM2, TinyLlama, Mistral, Qwen2, Qwen3.

They are one computation. What differs is told by the config: which products have a bias, whether
queries and keys are normed per head, how positions turn, and how far each layer sees.

Shapes: N tokens, H query heads, G key and value heads, D head size, E hidden.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import nn

from ostinato.llm.models.decoder import Decoder
from ostinato.llm.models.layers import Embedding, GatedMlp, RmsNorm, named
from ostinato.llm.models.linear import Linear
from ostinato.llm.models.rope import angles, rotate

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention import Attend
    from ostinato.llm.models.config import DecoderConfig


class LlamaDecoder(Decoder):
    """See the module."""

    frequencies: Tensor
    prefix = "model."
    table = "model.embed_tokens.weight"
    unused = (re.compile(r"rotary_emb\.inv_freq$"),)

    def __init__(self, config: DecoderConfig, *, is_invariant: bool) -> None:
        super().__init__(config, is_invariant=is_invariant)
        self.embedding = Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(
            LlamaLayer(config, layer, is_invariant=is_invariant) for layer in range(config.layers)
        )
        self.norm = RmsNorm(config.hidden, config.norm_eps)
        self.lm_head = None if config.is_tied else Embedding(config.vocabulary, config.hidden)
        self.register_buffer("frequencies", None, persistent=False)

    def settle(self) -> None:
        rope = self.config.rope
        assert rope is not None
        device = self.embedding.weight.device
        self.frequencies = rope.frequencies(self.config.head_dim, device)

    def run(self, tokens_N: Tensor, positions_N: Tensor, slots_N: Tensor, attend: Attend) -> Tensor:
        turn = angles(positions_N, self.frequencies)
        x_NE: Tensor = self.embedding(tokens_N)
        for layer in self.layers:
            x_NE = layer(x_NE, turn, slots_N, attend)
        out: Tensor = self.norm(x_NE)
        return out

    def head(self) -> Tensor:
        return (self.lm_head or self.embedding).weight

    def destinations(self) -> dict[str, Tensor]:
        found = named("model.embed_tokens.", self.embedding) | named("model.norm.", self.norm)
        for layer in self.layers:
            assert isinstance(layer, LlamaLayer)
            found |= layer.destinations(f"model.layers.{layer.index}.")
        if self.lm_head is not None:
            found |= named("lm_head.", self.lm_head)
        return found


class LlamaLayer(nn.Module):
    """Attention and a gated MLP, each behind a norm and added to what came in."""

    def __init__(self, config: DecoderConfig, index: int, *, is_invariant: bool) -> None:
        super().__init__()
        self.index = index
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        wide = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.norm_1 = RmsNorm(config.hidden, config.norm_eps)
        self.qkv = Linear(config.hidden, wide, bias=config.qkv_bias, is_invariant=is_invariant)
        self.q_norm = RmsNorm(config.head_dim, config.norm_eps) if config.has_qk_norm else None
        self.k_norm = RmsNorm(config.head_dim, config.norm_eps) if config.has_qk_norm else None
        self.out = Linear(
            config.heads * config.head_dim,
            config.hidden,
            bias=config.out_bias,
            is_invariant=is_invariant,
        )
        self.norm_2 = RmsNorm(config.hidden, config.norm_eps)
        self.mlp = GatedMlp(
            config.hidden,
            config.inner,
            config.activation,
            bias=config.mlp_bias,
            is_invariant=is_invariant,
        )

    def forward(
        self, x_NE: Tensor, turn: tuple[Tensor, Tensor], slots_N: Tensor, attend: Attend
    ) -> Tensor:
        mixed: Tensor = self.out(self._attention(self.norm_1(x_NE), turn, slots_N, attend))
        x_NE = x_NE + mixed
        added: Tensor = self.mlp(self.norm_2(x_NE))
        return x_NE + added

    def _attention(
        self, x_NE: Tensor, turn: tuple[Tensor, Tensor], slots_N: Tensor, attend: Attend
    ) -> Tensor:
        qkv = self.qkv(x_NE).unflatten(1, (-1, self.head_dim))
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return attend(self.index, rotate(q, *turn), rotate(k, *turn), v, slots_N).flatten(1)

    def destinations(self, prefix: str) -> dict[str, Tensor]:
        """Where each tensor of a checkpoint goes, by its name there."""
        sizes = [count * self.head_dim for count in (self.heads, self.kv_heads, self.kv_heads)]
        found: dict[str, Tensor] = {}
        for kind, value in self.qkv.named_parameters():
            for part, view in zip("qkv", value.split(sizes), strict=True):
                found[f"{prefix}self_attn.{part}_proj.{kind}"] = view
        for part, norm in (("q", self.q_norm), ("k", self.k_norm)):
            if norm is not None:
                found |= named(f"{prefix}self_attn.{part}_norm.", norm)
        found |= named(f"{prefix}self_attn.o_proj.", self.out)
        found |= named(f"{prefix}input_layernorm.", self.norm_1)
        found |= named(f"{prefix}post_attention_layernorm.", self.norm_2)
        return found | self.mlp.destinations(f"{prefix}mlp.")
