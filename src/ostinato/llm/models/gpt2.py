"""GPT-2: learned positions, layer norms with a shift, a plain MLP, biases everywhere.

Its checkpoints hold the matrices of products transposed, (inputs, outputs).

Shapes: N tokens, H heads, D head size, E hidden.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import nn

from ostinato.llm.models.decoder import Decoder
from ostinato.llm.models.layers import ACTIVATIONS, Embedding, LayerNorm, named
from ostinato.llm.models.linear import Linear

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention import Attend
    from ostinato.llm.models.config import DecoderConfig
    from ostinato.llm.models.linear import Place
    from ostinato.llm.models.ops import LayerOps


class Gpt2Decoder(Decoder):
    """See the module."""

    prefix = "transformer."
    table = "transformer.wte.weight"
    unused = (re.compile(r"\.attn\.(bias|masked_bias)$"),)

    def __init__(self, config: DecoderConfig, *, ops: LayerOps, is_invariant: bool) -> None:
        super().__init__(config, ops=ops, is_invariant=is_invariant)
        self.tokens = Embedding(config.vocabulary, config.hidden)
        self.positions = Embedding(config.max_positions, config.hidden)
        self.layers = nn.ModuleList(
            Gpt2Layer(config, layer, is_invariant=is_invariant) for layer in range(config.layers)
        )
        self.norm = LayerNorm(config.hidden, config.norm_eps)
        self.lm_head = None if config.is_tied else Embedding(config.vocabulary, config.hidden)

    def run(self, tokens_N: Tensor, positions_N: Tensor, slots_N: Tensor, attend: Attend) -> Tensor:
        x_NE: Tensor = self.tokens(tokens_N) + self.positions(positions_N)
        for layer in self.layers:
            x_NE = layer(x_NE, slots_N, attend)
        out: Tensor = self.norm(x_NE)
        return out

    def head(self) -> Tensor:
        return (self.lm_head or self.tokens).weight

    def destinations(self) -> dict[str, Place]:
        found = named("transformer.wte.", self.tokens) | named("transformer.wpe.", self.positions)
        found |= named("transformer.ln_f.", self.norm)
        for layer in self.layers:
            assert isinstance(layer, Gpt2Layer)
            found |= layer.destinations(f"transformer.h.{layer.index}.")
        if self.lm_head is not None:
            found |= named("lm_head.", self.lm_head)
        return found


class Gpt2Layer(nn.Module):
    """Attention and an MLP, each behind a norm and added to what came in."""

    def __init__(self, config: DecoderConfig, index: int, *, is_invariant: bool) -> None:
        super().__init__()
        self.index, self.heads = index, config.heads
        self.activation = ACTIVATIONS[config.activation]

        def linear(inputs: int, outputs: int) -> Linear:
            return Linear(inputs, outputs, bias=True, is_invariant=is_invariant)

        self.norm_1 = LayerNorm(config.hidden, config.norm_eps)
        self.qkv = linear(config.hidden, 3 * config.hidden)
        self.out = linear(config.hidden, config.hidden)
        self.norm_2 = LayerNorm(config.hidden, config.norm_eps)
        self.up = linear(config.hidden, config.inner)
        self.down = linear(config.inner, config.hidden)

    def forward(self, x_NE: Tensor, slots_N: Tensor, attend: Attend) -> Tensor:
        qkv = self.qkv(self.norm_1(x_NE)).unflatten(1, (3, self.heads, -1))
        q, k, v = qkv.unbind(1)
        mixed_NHD = attend(self.index, q, k, v, slots_N)
        mixed: Tensor = self.out(mixed_NHD.flatten(1))
        x_NE = x_NE + mixed
        added: Tensor = self.down(self.activation(self.up(self.norm_2(x_NE))))
        return x_NE + added

    def destinations(self, prefix: str) -> dict[str, Place]:
        """Where each tensor of a checkpoint goes, by its name there."""
        found = named(f"{prefix}ln_1.", self.norm_1) | named(f"{prefix}ln_2.", self.norm_2)
        products = {
            "attn.c_attn": self.qkv,
            "attn.c_proj": self.out,
            "mlp.c_fc": self.up,
            "mlp.c_proj": self.down,
        }
        for name, linear in products.items():
            places = linear.places()
            found[f"{prefix}{name}.weight"] = places["weight"].t()
            found[f"{prefix}{name}.bias"] = places["bias"]
        return found
