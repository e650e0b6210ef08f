"""Attention by Triton kernels: what a GPU runs.

Decoding is split over the whole device by the rows' real lengths; prompts go through tensor cores
tile by tile. In the invariant mode a prompt's tokens go through the decode kernel as if each were a
row: slower, but a token then has the same bits whether it was decoded, prefilled in one chunk or in
several, alone or in company.

Shapes: B rows, T packed tokens, H query heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ostinato.llm.attention.triton_plans import DecodePlans, decode_plans, prefill_plan
from ostinato.llm.kernels.early import can_begin_early
from ostinato.llm.kernels.paged_decode import Workspace, paged_decode
from ostinato.llm.kernels.paged_decode_few import paged_decode_few
from ostinato.llm.kernels.paged_prefill import PrefillPlan, paged_prefill

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention.base import AttentionShape
    from ostinato.llm.attention.batch import PrefillBatch
    from ostinato.llm.kv.store import KvStore

# Tokens of a prompt taken at once in the invariant mode: bounds the partial results.
_TOKENS = 256


@dataclass(frozen=True, slots=True)
class TritonAttention:
    """Attention by the kernels of `ostinato.llm.kernels`.

    Launches must follow one another on one stream: they share the workspace.

    Attributes:
        shared: What decoding programs tell each other; None: the invariant mode, where a token's
            bits do not depend on its company.
        is_early: Whether kernels can begin before the one ahead of them has ended.
    """

    shape: AttentionShape
    decode_plans: DecodePlans
    prefill_plan: PrefillPlan
    shared: Workspace | None
    is_early: bool = False
    name: str = "triton"
    cost_follows_table: bool = False
    captures_prefill: bool = True

    @classmethod
    def on(
        cls,
        shape: AttentionShape,
        *,
        device: torch.device,
        dtype: torch.dtype,
        is_invariant: bool,
        programs: int | None = None,
    ) -> TritonAttention:
        """Make the backend for one device and type of numbers.

        Args:
            programs: How many decoding programs share the work; None: what fills the device.
        """
        plans = decode_plans(
            shape, device=device, dtype=dtype, is_invariant=is_invariant, programs=programs
        )
        shared = None
        if not is_invariant:
            count = plans.programs
            shared = Workspace.empty(2 * count, count, shape.group, shape.head_dim, device)
        return cls(
            shape, plans, prefill_plan(shape, dtype), shared, is_early=can_begin_early(device)
        )

    def decode(
        self, layer: int, q_BHD: Tensor, store: KvStore, pages_BP: Tensor, lengths_B: Tensor
    ) -> Tensor:
        return self._by_rows(layer, q_BHD, store, pages_BP, lengths_B)

    def decode_next(
        self, layer: int, q_BHD: Tensor, store: KvStore, pages_BP: Tensor, lengths_B: Tensor
    ) -> Tensor:
        """Do as `decode`, beginning before the kernel ahead has ended.

        That kernel must have written nothing of this layer but the queries and the new tokens'
        keys and values, and let others begin after its own wait (`kernels/early.py`).
        """
        plan = self.decode_plans.fit_next(len(q_BHD))
        if plan is None or self.shared is None:
            return self._by_rows(layer, q_BHD, store, pages_BP, lengths_B, is_next=self.is_early)
        return paged_decode_few(
            q_BHD,
            store.keys[layer],
            store.values[layer],
            pages_BP,
            lengths_B,
            scale=self.shape.scales[layer],
            window=self.shape.windows[layer],
            plan=plan,
            shared=self.shared,
            is_early=self.is_early,
        )

    def prefill(self, layer: int, q_THD: Tensor, store: KvStore, batch: PrefillBatch) -> Tensor:
        if self.shared is None:
            return self._prefill_by_rows(layer, q_THD, store, batch)
        return paged_prefill(
            q_THD,
            store.keys[layer],
            store.values[layer],
            batch.pages_SP,
            batch.row_start_S1,
            batch.starts_S,
            scale=self.shape.scales[layer],
            window=self.shape.windows[layer],
            plan=self.prefill_plan,
        )

    def _prefill_by_rows(
        self, layer: int, q_THD: Tensor, store: KvStore, batch: PrefillBatch
    ) -> Tensor:
        at_T = torch.arange(len(q_THD), dtype=torch.int32, device=q_THD.device)
        owner_T = torch.searchsorted(batch.row_start_S1[1:], at_T, right=True, out_int32=True)
        lengths_T = (batch.positions_T + 1).masked_fill(at_T >= batch.row_start_S1[-1], 0)
        return torch.cat(
            [
                self._by_rows(layer, q_XHD, store, batch.pages_SP, lengths_X, owner_X)
                for q_XHD, lengths_X, owner_X in zip(
                    q_THD.split(_TOKENS),
                    lengths_T.split(_TOKENS),
                    owner_T.split(_TOKENS),
                    strict=True,
                )
            ]
        )

    def _by_rows(
        self,
        layer: int,
        q_BHD: Tensor,
        store: KvStore,
        pages_XP: Tensor,
        lengths_B: Tensor,
        owner_B: Tensor | None = None,
        *,
        is_next: bool = False,
    ) -> Tensor:
        return paged_decode(
            q_BHD,
            store.keys[layer],
            store.values[layer],
            pages_XP,
            lengths_B,
            scale=self.shape.scales[layer],
            window=self.shape.windows[layer],
            plan=self.decode_plans.fit(len(q_BHD)),
            shared=self.shared,
            owner_B=owner_B,
            is_early=is_next,
            knows_lengths=is_next,
        )
