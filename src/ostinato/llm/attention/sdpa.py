"""Attention in plain torch: the oracle on every device, and the only backend on a CPU.

The pages of each row are gathered into one stretch of keys, what lies past the row's length is
hidden, and torch does the rest. Stale pages may hold anything, not-a-numbers too, and a masked
score is not enough against those (0 times NaN is NaN): keys and values past the length are zeroed.

Shapes: B rows, T packed tokens, H query heads, G key and value heads, R = H / G, D head size, P
pages per row, S = P * page_tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from ostinato.llm.attention.blocks import attend_in_blocks

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention.base import AttentionShape
    from ostinato.llm.attention.batch import PrefillBatch
    from ostinato.llm.kv.store import KvStore

# Queries of a prompt taken at once: bounds the scores to a few MB whatever the prompt's length.
_QUERIES = 128


@dataclass(frozen=True, slots=True)
class SdpaAttention:
    """Attention by torch's own operators.

    Attributes:
        in_blocks: Compute so that a token's bits do not depend on its company (`blocks.py`).
    """

    shape: AttentionShape
    in_blocks: bool = False
    name: str = "sdpa"
    cost_follows_table: bool = True
    captures_prefill: bool = False

    def decode(
        self, layer: int, q_BHD: Tensor, store: KvStore, pages_BP: Tensor, lengths_B: Tensor
    ) -> Tensor:
        keys, values, place_S = _gather(layer, store, pages_BP, lengths_B)
        ends_B1 = lengths_B[:, None]
        visible_BS = _visible(place_S, ends_B1 - 1, self.shape.windows[layer])
        q_BGRD = q_BHD.unflatten(1, (self.shape.kv_heads, self.shape.group))
        out = self._core(layer, q_BGRD, keys, values, visible_BS[:, None]).flatten(1, 2)
        return out.masked_fill((lengths_B <= 0)[:, None, None], 0)

    def prefill(self, layer: int, q_THD: Tensor, store: KvStore, batch: PrefillBatch) -> Tensor:
        out = torch.zeros_like(q_THD)
        for row in range(len(batch.row_start) - 1):
            keys, values, place_S = _gather(
                layer, store, batch.pages_SP[row : row + 1], batch.lengths_S[row : row + 1]
            )
            first, end = batch.row_start[row : row + 2]
            for start in range(first, end, _QUERIES):
                span = slice(start, min(start + _QUERIES, end))
                visible_QS = _visible(
                    place_S, batch.positions_T[span, None], self.shape.windows[layer]
                )
                out[span] = self._chunk(layer, q_THD[span], keys, values, visible_QS)
        return out

    def _chunk(
        self, layer: int, q_QHD: Tensor, keys: Tensor, values: Tensor, visible_QS: Tensor
    ) -> Tensor:
        heads, group = self.shape.kv_heads, self.shape.group
        q_GQRD = q_QHD.unflatten(1, (heads, group)).transpose(0, 1)
        visible = visible_QS[:, None].expand(-1, group, -1).flatten(0, 1)[None]
        out = self._core(layer, q_GQRD.flatten(1, 2)[None], keys, values, visible)
        out_QHD: Tensor = out[0].unflatten(1, (-1, group)).transpose(0, 1).flatten(1, 2)
        return out_QHD

    def _core(
        self, layer: int, q_XGMD: Tensor, k_XGSD: Tensor, v_XGSD: Tensor, visible_XMS: Tensor
    ) -> Tensor:
        scale = self.shape.scales[layer]
        if self.in_blocks:
            return attend_in_blocks(q_XGMD, k_XGSD, v_XGSD, visible_XMS, scale)
        return functional.scaled_dot_product_attention(
            q_XGMD, k_XGSD, v_XGSD, attn_mask=visible_XMS[:, None], scale=scale
        )


def _gather(
    layer: int, store: KvStore, pages_XP: Tensor, lengths_X: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return keys and values as (X, G, S, D), zero past each length, and the positions of S."""
    rows, wide = pages_XP.shape
    first_P = torch.arange(wide, device=pages_XP.device) * store.page_tokens
    is_used_XP = first_P < lengths_X[:, None]
    pages = pages_XP.masked_fill(~is_used_XP, 0).flatten()
    place_S = torch.arange(wide * store.page_tokens, device=pages_XP.device)
    is_stale = (place_S >= lengths_X[:, None])[:, None, :, None]

    def stretch(kept: Tensor) -> Tensor:
        gathered = kept[layer].index_select(0, pages).view(rows, -1, *kept.shape[3:])
        return gathered.transpose(1, 2).masked_fill(is_stale, 0)

    return stretch(store.keys), stretch(store.values), place_S


def _visible(place_S: Tensor, position_X1: Tensor, window: int | None) -> Tensor:
    is_past = place_S <= position_X1
    return is_past if window is None else is_past & (place_S > position_X1 - window)
