"""A plain decoder with a resident cache, for the traffic: nothing in it but torch.

Shapes: T tokens of a prompt, C columns of the cache, H heads, D head size, E width. Batch 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of a decoder.

    Attributes:
        columns: Positions, prompt and answer together.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    columns: int

    def __str__(self) -> str:
        return (
            f"decoder of {self.layers} layers, width {self.width}, {self.columns} positions, "
            "random weights"
        )


class Layer(nn.Module):
    """Attention and a feed-forward part, each added to what came in."""

    keys_HCD: Tensor
    values_HCD: Tensor

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        width = shape.width
        self.heads, self.size = shape.heads, width // shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for name in ("keys_HCD", "values_HCD"):
            room = torch.zeros(shape.heads, shape.columns, self.size)
            self.register_buffer(name, room, persistent=False)

    def prefill(self, hidden_TE: Tensor, is_real_T1: Tensor) -> Tensor:
        """Run a prompt and cache the keys and values of its real tokens."""
        tokens = hidden_TE.shape[0]
        q_HTD, k_HTD, v_HTD = self._project(hidden_TE)
        for cache_HCD, new_HTD in ((self.keys_HCD, k_HTD), (self.values_HCD, v_HTD)):
            here_HTD = cache_HCD[:, :tokens]
            here_HTD.copy_(torch.where(is_real_T1, new_HTD, here_HTD))
        attended = functional.scaled_dot_product_attention(
            q_HTD[None], k_HTD[None], v_HTD[None], is_causal=True
        )[0]
        return self._finish(hidden_TE, attended)

    def decode(self, hidden_1E: Tensor, position_1: Tensor, future_C: Tensor) -> Tensor:
        """Run one token, cached at `position_1`; `future_C` bars the columns behind it."""
        q_H1D, k_H1D, v_H1D = self._project(hidden_1E)
        self.keys_HCD.index_copy_(1, position_1, k_H1D)
        self.values_HCD.index_copy_(1, position_1, v_H1D)
        scores_H1C = (q_H1D @ self.keys_HCD.transpose(1, 2)) * self.size**-0.5
        weights = scores_H1C.masked_fill(future_C, float("-inf")).softmax(-1)
        return self._finish(hidden_1E, weights @ self.values_HCD)

    def _project(self, hidden_TE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        split = self.qkv(self.norm1(hidden_TE)).view(-1, 3, self.heads, self.size)
        q_HTD, k_HTD, v_HTD = split.transpose(0, 2).unbind(1)
        return q_HTD, k_HTD, v_HTD

    def _finish(self, hidden_TE: Tensor, attended_HTD: Tensor) -> Tensor:
        hidden: Tensor = hidden_TE + self.out(attended_HTD.transpose(0, 1).flatten(1))
        fed: Tensor = self.down(functional.gelu(self.up(self.norm2(hidden))))
        return fed + hidden


class Decoder(nn.Module):
    """Token ids to the next token, greedy."""

    columns_C: Tensor

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.columns, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.register_buffer("columns_C", torch.arange(shape.columns), persistent=False)

    def prefill(self, ids_T: Tensor, last_1: Tensor) -> Tensor:
        """Run a prompt; returns the next token, (1,).

        Args:
            ids_T: Padding may follow the prompt: no real position looks at it, and it leaves
                nothing in the cache.
            last_1: Where the prompt's last token stands.

        Capture:
            Safe.
        """
        columns_T = self.columns_C[: ids_T.shape[0]]
        hidden = self.tokens(ids_T) + self.places(columns_T)
        is_real_T1 = (columns_T <= last_1)[:, None]
        for layer in self._all_layers():
            hidden = layer.prefill(hidden, is_real_T1)
        return self._choose(hidden.index_select(0, last_1))

    def decode(self, token_1: Tensor, position_1: Tensor) -> tuple[Tensor, Tensor]:
        """Run one token that stands at `position_1`; returns the next token and its position.

        Capture:
            Safe.
        """
        hidden = self.tokens(token_1) + self.places(position_1)
        future_C = self.columns_C > position_1
        for layer in self._all_layers():
            hidden = layer.decode(hidden, position_1, future_C)
        return self._choose(hidden), position_1 + 1

    def _all_layers(self) -> Iterable[Layer]:
        return cast("Iterable[Layer]", self.layers)

    def _choose(self, hidden_1E: Tensor) -> Tensor:
        chosen: Tensor = self.head(self.norm(hidden_1E)).argmax(-1)
        return chosen
