"""Llama and its relatives: Llama 2 and 3, SmolLM2, TinyLlama, Mistral, Qwen2, Qwen3.

They are one computation. What differs is told by the config: which products have a bias, whether
queries and keys are normed per head, how positions turn, and how far each layer sees.

Shapes: N tokens, H query heads, G key and value heads, D head size, E hidden.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from torch import nn

from ostinato.llm.attention.base import DecodeAttend, PrefillAttend
from ostinato.llm.models.decoder import Decoder
from ostinato.llm.models.layers import Embedding, RmsNorm, named
from ostinato.llm.models.linear import Linear
from ostinato.llm.models.paths import DecodePath, reason_against_fused
from ostinato.llm.models.rope import Turn, turn_by

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention import Attend
    from ostinato.llm.models.config import DecoderConfig
    from ostinato.llm.models.fused import Fused
    from ostinato.llm.models.linear import Place
    from ostinato.llm.models.ops import LayerOps


class LlamaDecoder(Decoder):
    """See the module."""

    frequencies: Tensor
    against_fused: str | None = None
    prefix = "model."
    table = "model.embed_tokens.weight"
    unused = (re.compile(r"rotary_emb\.inv_freq$"),)

    def __init__(self, config: DecoderConfig, *, ops: LayerOps, is_invariant: bool) -> None:
        super().__init__(config, ops=ops, is_invariant=is_invariant)
        self.embedding = Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(
            LlamaLayer(config, layer, ops, is_invariant=is_invariant)
            for layer in range(config.layers)
        )
        self.norm = RmsNorm(config.hidden, config.norm_eps)
        self.lm_head = None if config.is_tied else Embedding(config.vocabulary, config.hidden)
        self.register_buffer("frequencies", None, persistent=False)
        self.fused: Fused | None = None

    def settle(self) -> None:
        rope = self.config.rope
        assert rope is not None
        weight = self.embedding.weight
        self.frequencies = rope.frequencies(self.config.head_dim, weight.device)
        self.amplitude = rope.amplitude
        self.against_fused = reason_against_fused(
            self.config, weight.device, weight.dtype, is_invariant=self.is_invariant
        )
        if self.against_fused is None:
            # Only here: not every machine has triton.
            from ostinato.llm.models.fused import Fused

            self.fused = Fused.of(self)

    @property
    def decode_path(self) -> DecodePath:
        if self.fused is None:
            return DecodePath("composable", self.against_fused or "its weights have no place yet")
        return DecodePath("fused", self.fused.description)

    def choose_plans(self) -> None:
        if self.fused is not None:
            from ostinato.llm.models.measuring import known

            plans = known(self)
            self.fused = self.fused if plans is None else replace(self.fused, plans=plans)

    def fused_layers(self) -> list[LlamaLayer]:
        """Return the layers, first to last."""
        return cast("list[LlamaLayer]", list(self.layers))

    def run(self, tokens_N: Tensor, positions_N: Tensor, slots_N: Tensor, attend: Attend) -> Tensor:
        if self.fused is not None and isinstance(attend, DecodeAttend | PrefillAttend):
            return self.fused.run(tokens_N, positions_N, slots_N, attend)
        turn = turn_by(positions_N, self.frequencies, self.amplitude)
        x_NE: Tensor = self.embedding(tokens_N)
        added_NE: Tensor | None = None
        for layer in self.layers:
            x_NE, added_NE = layer(x_NE, added_NE, turn, slots_N, attend)
        return self.ops.add_norm(x_NE, added_NE, self.norm.weight, self.norm.eps)[1]

    def head(self) -> Tensor:
        return (self.lm_head or self.embedding).weight

    def destinations(self) -> dict[str, Place]:
        found = named("model.embed_tokens.", self.embedding) | named("model.norm.", self.norm)
        for layer in self.layers:
            assert isinstance(layer, LlamaLayer)
            found |= layer.destinations(f"model.layers.{layer.index}.")
        if self.lm_head is not None:
            found |= named("lm_head.", self.lm_head)
        return found


class LlamaLayer(nn.Module):
    """Attention and a gated MLP, each behind a norm and added to what came in.

    The last sum is left to the norm that follows, the next layer's, with which it can be one step.
    """

    def __init__(
        self, config: DecoderConfig, index: int, ops: LayerOps, *, is_invariant: bool
    ) -> None:
        super().__init__()
        self.index, self.ops = index, ops
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
        self.mlp = GatedMlp(config, ops, is_invariant=is_invariant)

    def forward(
        self,
        x_NE: Tensor,
        added_NE: Tensor | None,
        turn: Turn,
        slots_N: Tensor,
        attend: Attend,
    ) -> tuple[Tensor, Tensor]:
        ops, first, second = self.ops, self.norm_1, self.norm_2
        x_NE, normed_NE = ops.add_norm(x_NE, added_NE, first.weight, first.eps)
        mixed_NE = self.out(self._attention(normed_NE, turn, slots_N, attend))
        x_NE, normed_NE = ops.add_norm(x_NE, mixed_NE, second.weight, second.eps)
        return x_NE, self.mlp(normed_NE)

    def _attention(self, x_NE: Tensor, turn: Turn, slots_N: Tensor, attend: Attend) -> Tensor:
        sizes = (self.heads, self.kv_heads, self.kv_heads)
        qkv = self.qkv(x_NE).unflatten(1, (-1, self.head_dim))
        q, k, v = qkv.split(sizes, dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.ops.rotate(self.q_norm(q), turn), self.ops.rotate(self.k_norm(k), turn)
        else:  # side by side already, so that one turn does for both
            both = self.ops.rotate(qkv[:, : self.heads + self.kv_heads], turn)
            q, k = both.split(sizes[:2], dim=1)
        return attend(self.index, q, k, v, slots_N).flatten(1)

    def destinations(self, prefix: str) -> dict[str, Place]:
        """Where each tensor of a checkpoint goes, by its name there."""
        sizes = [count * self.head_dim for count in (self.heads, self.kv_heads, self.kv_heads)]
        found: dict[str, Place] = {}
        for kind, value in self.qkv.places().items():
            for part, view in zip("qkv", value.split(sizes), strict=True):
                found[f"{prefix}self_attn.{part}_proj.{kind}"] = view
        for part, norm in (("q", self.q_norm), ("k", self.k_norm)):
            if norm is not None:
                found |= named(f"{prefix}self_attn.{part}_norm.", norm)
        found |= named(f"{prefix}self_attn.o_proj.", self.out)
        found |= named(f"{prefix}input_layernorm.", self.norm_1)
        found |= named(f"{prefix}post_attention_layernorm.", self.norm_2)
        return found | self.mlp.destinations(f"{prefix}mlp.")


class GatedMlp(nn.Module):
    """`down(activation(gate(x)) * up(x))`, with gate and up as one product."""

    def __init__(self, config: DecoderConfig, ops: LayerOps, *, is_invariant: bool) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden, config.inner, config.mlp_bias
        self.activation, self.ops = config.activation, ops
        self.gate_up = Linear(hidden, 2 * inner, bias=bias, is_invariant=is_invariant)
        self.down = Linear(inner, hidden, bias=bias, is_invariant=is_invariant)

    def forward(self, x_NE: Tensor) -> Tensor:
        x: Tensor = self.down(self.ops.gate(self.gate_up(x_NE), self.activation))
        return x

    def destinations(self, prefix: str) -> dict[str, Place]:
        """Where each tensor of a checkpoint goes, by its name there."""
        found: dict[str, Place] = {}
        for kind, value in self.gate_up.places().items():
            found[f"{prefix}gate_proj.{kind}"], found[f"{prefix}up_proj.{kind}"] = value.chunk(2)
        return found | named(f"{prefix}down_proj.", self.down)
