"""The layers of Llama and its relatives in a handful of kernels each.

    few tokens   norm + QKV + turn + cache | attention | out + sum | norm + gate/up | down + sum
    a batch      the same five, on tensor cores
    many         as above, the products by the library and what is between them by four small ones

Which product is computed how, the plans say (`fused_plans.py`); each may be computed either way.
Queries and keys that are normed per head (Qwen3) need whole heads, so there the turn is a kernel of
its own. On a GPU that can, every kernel begins before the one ahead has ended (`kernels/early.py`).

The last norm is left to who takes the hidden states, for the head can do it in passing
(`Unnormed`). The residual is kept in place. Prompts go the same way as decoding, by the number of
their tokens.

Shapes: N tokens, E hidden, H query heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

from ostinato.llm.attention.base import DecodeAttend, PrefillAttend
from ostinato.llm.attention.triton_attention import TritonAttention
from ostinato.llm.kernels.begin_rows import Begun, begin_rows
from ostinato.llm.kernels.early import can_begin_early
from ostinato.llm.kernels.few_gate_up import few_gate_up
from ostinato.llm.kernels.few_product_add import few_product_add
from ostinato.llm.kernels.few_qkv import few_qkv
from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.gate_rows import gate_rows
from ostinato.llm.kernels.matrix import Matrix
from ostinato.llm.kernels.norm_rows import norm_rows
from ostinato.llm.kernels.standing import Standing
from ostinato.llm.kernels.tiled_gate_up import tiled_gate_up
from ostinato.llm.kernels.tiled_product_add import NextNorm, tiled_product_add
from ostinato.llm.kernels.tiled_qkv import tiled_qkv
from ostinato.llm.kernels.tiled_rows import SplitRoom, TilePlan, Weighed
from ostinato.llm.kernels.turn_rows import HeadNorms, Place, turn_rows
from ostinato.llm.kernels.weigh_rows import weigh_rows
from ostinato.llm.models.fused_plans import (
    LayerPlan,
    LayerPlans,
    LayerSizes,
    Plan,
    Product,
    plans_for,
)
from ostinato.llm.models.quantized import QuantizedLinear

if TYPE_CHECKING:
    from ostinato.llm.models.config import DecoderConfig
    from ostinato.llm.models.layers import RmsNorm
    from ostinato.llm.models.linear import Linear
    from ostinato.llm.models.llama import LlamaDecoder, LlamaLayer

    # What a product made of the residual for the norm that follows: weighed it, or left itself to
    # be added.
    _Ready: TypeAlias = Weighed | Tensor | None


class _Head:
    """What follows the last layer: it takes tokens weighed, or a norm of their own comes first."""


_HEAD = _Head()
_Following: TypeAlias = Plan | _Head


@dataclass(frozen=True, slots=True)
class Fused:
    """A decoder's layers, fused.

    Attributes:
        is_early: Whether kernels begin before the one ahead has ended.
    """

    decoder: LlamaDecoder
    plans: LayerPlans
    room: SplitRoom
    is_early: bool

    @classmethod
    def of(cls, decoder: LlamaDecoder) -> Fused:
        """Make it for a decoder whose weights are where they will stay."""
        is_quantised = any(isinstance(each, QuantizedLinear) for each in decoder.modules())
        plans = plans_for(sizes_of(decoder.config), is_quantised=is_quantised)
        device = decoder.embedding.weight.device
        return cls(decoder, plans, SplitRoom.empty(device), can_begin_early(device))

    @property
    def description(self) -> str:
        """What serves how many tokens, for reports."""
        return self.plans.description + (
            ", launched early" if self.is_early else ", launched one after the other"
        )

    def run(
        self,
        tokens_N: Tensor,
        positions_N: Tensor,
        slots_N: Tensor,
        attend: DecodeAttend | PrefillAttend,
    ) -> Tensor:
        """Return the hidden states (N, E) after the last norm.

        Capture:
            Safe, if the attention backend is.
        """
        begun = self._begin(tokens_N, positions_N, None)
        return self._layers(begun, slots_N, attend).normed()

    def step(self, standing: Standing, attend: DecodeAttend) -> Unnormed:
        """Take rows one token further that begin to stand in the same launch.

        Args:
            standing: Where they stand; filled before a layer looks.
            attend: With the lengths of `standing`.

        Capture:
            Safe, if the attention backend is.
        """
        begun = self._begin(*standing.inputs, standing)
        return self._layers(begun, standing.slots_B, attend)

    def _begin(self, tokens_N: Tensor, positions_N: Tensor, standing: Standing | None) -> Begun:
        decoder = self.decoder
        norm = decoder.fused_layers()[0].norm_1
        is_weighed = isinstance(self.plans.fit(len(tokens_N)).qkv, TilePlan)
        return begin_rows(
            tokens_N,
            positions_N,
            decoder.embedding.weight,
            decoder.frequencies,
            decoder.amplitude,
            norm=NextNorm(norm.weight, norm.eps) if is_weighed else None,
            standing=standing,
            is_early=self.is_early,
        )

    def _layers(
        self, begun: Begun, slots_N: Tensor, attend: DecodeAttend | PrefillAttend
    ) -> Unnormed:
        plan = self.plans.fit(len(begun.x_NE))
        run = _Run(plan, attend, begun, slots_N, self.room, self.is_early)
        ready: _Ready = begun.weighed
        layers, last = self.decoder.fused_layers(), self.decoder.norm
        for layer, next_layer in pairwise(layers):
            ready = run.layer(layer, ready, next_layer.norm_1, plan.qkv)
        ready = run.layer(layers[-1], ready, last, _HEAD)
        return Unnormed(begun.x_NE, ready, last, self.is_early)


@dataclass(frozen=True, slots=True)
class Unnormed:
    """Hidden states that the last norm has not seen.

    Attributes:
        x_NE: The residual, but for a product that the norm is to add.
        ready: What the last product made of it for the norm.
    """

    x_NE: Tensor
    ready: _Ready
    norm: RmsNorm
    is_early: bool

    @property
    def weighed(self) -> Weighed | None:
        """What a product by tiles takes, which needs no norm ahead of it; None: there is none."""
        return self.ready if isinstance(self.ready, Weighed) else None

    @property
    def residual(self) -> tuple[Tensor, NextNorm] | None:
        """The whole residual and the norm, for who makes that itself; None: it is not whole."""
        norm = NextNorm(self.norm.weight, self.norm.eps)
        return None if isinstance(self.ready, Tensor) else (self.x_NE, norm)

    def normed(self) -> Tensor:
        """Return the hidden states (N, E) after the last norm; once.

        Capture:
            Safe.
        """
        added_NE, norm = _product_of(self.ready), self.norm
        return norm_rows(self.x_NE, added_NE, norm.weight, norm.eps, is_early=self.is_early)[1]


@dataclass(frozen=True, slots=True)
class _Run:
    """One run through all layers; the residual is kept in the place where it began."""

    plan: LayerPlan
    attend: DecodeAttend | PrefillAttend
    begun: Begun
    slots_N: Tensor
    room: SplitRoom
    is_early: bool

    def layer(
        self, layer: LlamaLayer, ready: _Ready, after: RmsNorm, following: _Following
    ) -> _Ready:
        """Run a layer; return what it made for the norm after it."""
        plan, mlp = self.plan, layer.mlp
        q_NHD = self._qkv(layer, ready)
        mixed_NF = self._attend(layer.index, q_NHD).flatten(1)
        ready = self._product_add(mixed_NF, layer.out, layer.norm_2, plan.out, plan.gate_up)
        inner_NI = self._product(layer.norm_2, mlp.gate_up, mlp.activation, ready, plan.gate_up)
        return self._product_add(inner_NI, mlp.down, after, plan.down, following)

    def _qkv(self, layer: LlamaLayer, ready: _Ready) -> Tensor:
        store, early, plan = self.attend.store, self.is_early, self.plan.qkv
        place = Place(
            self.begun.cos_NC,
            self.begun.sin_NC,
            self.slots_N,
            store.keys[layer.index],
            store.values[layer.index],
        )
        norm, linear = layer.norm_1, layer.qkv
        if layer.q_norm is not None and layer.k_norm is not None:
            norms = HeadNorms(layer.q_norm.weight, layer.k_norm.weight, layer.q_norm.eps)
            qkv_NF = self._product(norm, linear, None, ready, plan)
            return turn_rows(qkv_NF, layer.heads, place, norms, is_early=early)
        if isinstance(plan, FewPlan):
            return few_qkv(
                self.begun.x_NE,
                norm.weight,
                norm.eps,
                matrix_of(linear),
                layer.heads,
                place,
                plan=plan,
                is_early=early,
            )
        if isinstance(plan, TilePlan):
            return tiled_qkv(
                self._weighed(norm, ready),
                matrix_of(linear),
                layer.heads,
                place,
                plan=plan,
                room=self.room,
                is_early=early,
            )
        qkv_NF = self._product(norm, linear, None, ready, None)
        return turn_rows(qkv_NF, layer.heads, place, None, is_early=early)

    def _product(
        self,
        norm: RmsNorm,
        linear: Linear,
        activation: str | None,
        ready: _Ready,
        plan: Plan,
    ) -> Tensor:
        """Return the product of the normed residual, gated if there is an activation."""
        x_NE, early = self.begun.x_NE, self.is_early
        if isinstance(plan, FewPlan):
            return few_gate_up(
                x_NE,
                norm.weight,
                norm.eps,
                matrix_of(linear),
                activation,
                plan=plan,
                is_early=early,
            )
        if isinstance(plan, TilePlan):
            return tiled_gate_up(
                self._weighed(norm, ready),
                matrix_of(linear),
                activation,
                plan=plan,
                room=self.room,
                is_early=early,
            )
        normed_NE = norm_rows(x_NE, _product_of(ready), norm.weight, norm.eps, is_early=early)[1]
        product: Tensor = linear(normed_NE)
        return product if activation is None else gate_rows(product, activation, is_early=early)

    def _product_add(
        self,
        h_NK: Tensor,
        linear: Linear,
        after: RmsNorm,
        plan: Plan,
        following: _Following,
    ) -> _Ready:
        """Add a product to the residual, or leave that; weigh it if what follows wants it so."""
        x_NE, early = self.begun.x_NE, self.is_early
        if isinstance(plan, FewPlan):
            few_product_add(x_NE, h_NK, matrix_of(linear), plan=plan, is_early=early)
            return None
        if isinstance(plan, TilePlan):
            weighed = tiled_product_add(
                x_NE,
                h_NK,
                matrix_of(linear),
                NextNorm(after.weight, after.eps),
                plan=plan,
                room=self.room,
                is_early=early,
            )
            return weighed if isinstance(following, TilePlan | _Head) else None
        if plan is None and not isinstance(linear, QuantizedLinear) and linear.bias is None:
            x_NE.addmm_(h_NK, linear.weight.t())
            return None
        product_NE: Tensor = linear(h_NK)
        if not isinstance(following, FewPlan | TilePlan):  # a norm comes first, and adds it
            return product_NE
        x_NE.add_(product_NE)
        return None

    def _weighed(self, norm: RmsNorm, ready: _Ready) -> Weighed:
        if isinstance(ready, Weighed):
            return ready
        return weigh_rows(self.begun.x_NE, norm.weight, norm.eps, is_early=self.is_early)

    def _attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        attend = self.attend
        if isinstance(attend, PrefillAttend):
            return attend.backend.prefill(layer, q_NHD, attend.store, attend.batch)
        backend, tables = attend.backend, (attend.pages_BP, attend.lengths_B)
        if isinstance(backend, TritonAttention):
            return backend.decode_next(layer, q_NHD, attend.store, *tables)
        return backend.decode(layer, q_NHD, attend.store, *tables)


def _product_of(ready: _Ready) -> Tensor | None:
    """Return the product that a norm is to add."""
    return None if isinstance(ready, Weighed) else ready


def matrix_of(linear: Linear) -> Matrix:
    """Return a layer's matrix as kernels take it."""
    scale = linear.scale if isinstance(linear, QuantizedLinear) else None
    return Matrix(linear.weight, scale, linear.bias)


def sizes_of(config: DecoderConfig) -> LayerSizes:
    """Return the products of a layer of a model."""
    attended = config.heads * config.head_dim
    wide = attended + 2 * config.kv_heads * config.head_dim
    return LayerSizes(
        # Whole heads that are normed are turned apart, so their rows need not go in pairs.
        qkv=Product(config.hidden, wide)
        if config.has_qk_norm
        else Product(config.hidden, wide // 2, in_pairs=True),
        out=Product(attended, config.hidden),
        gate_up=Product(config.hidden, config.inner, in_pairs=True),
        down=Product(config.inner, config.hidden),
    )
