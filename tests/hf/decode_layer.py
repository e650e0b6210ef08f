"""What a decode layer does beside its matrix products, alone and at any size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CALLS_SAVED = {torch.float32: 16, torch.bfloat16: 18, torch.float16: 18}
"""Plain calls less kernels, when all of it is fused."""


class DecodeLayer(nn.Module):
    """A residual, a norm, rotary embeddings into a cache and a gated activation.

    Written as transformers writes them. Called, it returns everything that it computed, flat.
    """

    def __init__(
        self,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        *,
        rows: int = 2,
        heads: int = 3,
        kv_heads: int = 1,
        size: int = 8,
        hidden: int = 24,
        inner: int = 33,
        columns: int = 11,
    ) -> None:
        super().__init__()

        def some(*shape: int) -> Tensor:
            return torch.randn(shape, device=device).mul(3).to(dtype)

        self.x, self.added, self.weight = some(rows, 1, hidden), some(rows, 1, hidden), some(hidden)
        self.q = some(rows, 1, heads, size).transpose(1, 2)
        self.k = some(rows, 1, kv_heads, size).transpose(1, 2)
        self.v = some(rows, 1, kv_heads, size).transpose(1, 2)
        self.cos, self.sin = some(rows, 1, size), some(rows, 1, size)
        self.keys = some(rows, kv_heads, columns, size)
        self.values = some(rows, kv_heads, columns, size)
        self.column = torch.tensor([columns // 2], device=device)
        self.gate, self.up = some(rows, 1, inner), some(rows, 1, inner)

    def forward(self) -> Tensor:
        total, normed = self.norm()
        parts = (total, normed, self.turn(), self.keys, self.values, self.activate())
        return torch.cat([part.reshape(-1) for part in parts])

    def norm(self) -> tuple[Tensor, Tensor]:
        total = self.x + self.added
        wide = total.to(torch.float32)
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(variance + 1e-6)
        return total, self.weight * wide.to(total.dtype)

    def turn(self) -> Tensor:
        q, k = self.turned(self.q), self.turned(self.k)
        self.keys.index_copy_(2, self.column, k)
        self.values.index_copy_(2, self.column, self.v)
        return q

    def turned(self, x: Tensor) -> Tensor:
        low, high = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        across = torch.cat((-high, low), dim=-1)
        return x * self.cos.unsqueeze(1) + across * self.sin.unsqueeze(1)

    def activate(self) -> Tensor:
        return nn.functional.silu(self.gate) * self.up
