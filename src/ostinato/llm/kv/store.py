"""The keys and values of every cached token, in pages of a few tokens.

A slot is a place for one token: `page * page_tokens + offset`, the same number in every layer.
Which sequence owns which page is decided elsewhere (`kv/pages.py`); this is only the memory. Page 0
is never granted to anyone: the tokens of padding rows are written there.

Shapes: L layers, N tokens, B rows, P pages per row, G key and value heads, D head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class KvStore:
    """Paged memory for keys and values.

    Attributes:
        keys, values: (L, pages, page_tokens, G, D).
    """

    def __init__(
        self,
        layers: int,
        pages: int,
        page_tokens: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Allocate both tensors, filled with zeros."""
        shape = (layers, pages, page_tokens, kv_heads, head_dim)
        self.pages = pages
        self.page_tokens = page_tokens
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def write(self, layer: int, k_NGD: Tensor, v_NGD: Tensor, slots_N: Tensor) -> None:
        """Store one layer's keys and values of N tokens.

        Args:
            slots_N: int64. Only slots of page 0 may occur twice.

        Capture:
            Safe.
        """
        for kept, new in ((self.keys, k_NGD), (self.values, v_NGD)):
            kept[layer].flatten(0, 1).index_copy_(0, slots_N, new)

    def slots_at(self, pages_BP: Tensor, positions_B: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the slot of one position of each row, int64; rows of length 0 get slot 0.

        Capture:
            Safe.
        """
        is_padding_B = lengths_B <= 0
        position_B = positions_B.long().masked_fill(is_padding_B, 0)
        page_B = pages_BP.gather(1, (position_B // self.page_tokens)[:, None])[:, 0].long()
        slot_B = page_B * self.page_tokens + position_B % self.page_tokens
        return slot_B.masked_fill(is_padding_B, 0)

    @property
    def bytes(self) -> int:
        """Memory of both tensors."""
        return self.keys.nbytes + self.values.nbytes


def bytes_per_page(
    layers: int, page_tokens: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> int:
    """Return what one page costs, keys and values of all layers."""
    return 2 * layers * page_tokens * kv_heads * head_dim * dtype.itemsize
