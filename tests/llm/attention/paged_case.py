"""Sequences in poisoned pages, and attention over them written out in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ostinato.llm.attention import AttentionShape
from ostinato.llm.kv.store import KvStore

SCALE = 0.2
# Unequal rounding of inputs is no error of the kernel: inputs are rounded before either computes.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass(frozen=True)
class PagedCase:
    """Sequences cached in pages that lie in no order.

    What nobody owns is not a number, and table entries that no row needs are no page numbers.

    Attributes:
        keys, values: Of every sequence, (length, G, D).
    """

    shape: AttentionShape
    store: KvStore
    pages_BP: Tensor
    lengths_B: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]

    @classmethod
    def of(
        cls,
        lengths: Sequence[int],
        *,
        heads: int,
        kv_heads: int,
        size: int,
        window: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device,
        page_tokens: int = 16,
        spare_pages: int = 3,
    ) -> Self:
        """Cache sequences of random numbers in the second of two layers."""
        shape = AttentionShape(heads, kv_heads, size, (1.0, SCALE), (None, window))
        counts = [-(-length // page_tokens) for length in lengths]
        total = sum(counts) + 1
        store = KvStore(2, total, page_tokens, kv_heads, size, dtype, device)
        store.keys.fill_(torch.nan)
        store.values.fill_(torch.inf)
        free = (torch.randperm(total - 1) + 1).split([*counts])
        pages = torch.full((len(lengths), max(counts) + spare_pages), 2**30, dtype=torch.int32)
        keys, values = [], []
        for row, (length, own) in enumerate(zip(lengths, free, strict=True)):
            pages[row, : len(own)] = own
            k, v = (torch.randn(length, kv_heads, size, device=device).to(dtype) for _ in range(2))
            at = torch.arange(length)
            slots = own[at // page_tokens] * page_tokens + at % page_tokens
            store.write(1, k, v, slots.to(device))
            keys.append(k)
            values.append(v)
        lengths_B = torch.tensor(lengths, device=device)
        return cls(shape, store, pages.to(device), lengths_B, keys, values)

    def queries(self, count: int) -> Tensor:
        """Return random queries (count, H, D)."""
        q = torch.randn(count, self.shape.heads, self.shape.head_dim, device=self.lengths_B.device)
        return q.to(self.store.keys.dtype)

    def expected(self, q_HD: Tensor, row: int, position: int) -> Tensor:
        """Return (H, D) in float64: what a query at a position of a row gathers."""
        window = self.shape.windows[1]
        first = 0 if window is None else max(0, position + 1 - window)
        k, v = (kept[row][first : position + 1].double() for kept in (self.keys, self.values))
        q_GRD = q_HD.double().unflatten(0, (self.shape.kv_heads, -1))
        weights = torch.einsum("grd,sgd->grs", q_GRD * SCALE, k).softmax(-1)
        return torch.einsum("grs,sgd->grd", weights, v).flatten(0, 1)
