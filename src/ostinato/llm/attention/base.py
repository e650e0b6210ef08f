"""What every attention backend promises, and how a decoder reaches one.

A decoder knows layers; it knows neither pages nor which kernel reads them. It calls `attend(layer,
q, k, v, slots)`, and one of the two small classes below writes the new keys and values into the
store and asks the backend. A faster backend, or one that writes and attends in a single kernel,
replaces them without a change to any model.

Shapes: N tokens (B rows when decoding, T packed prompt tokens when prefilling), H query heads, G
key and value heads, D head size, P pages per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention.batch import PrefillBatch
    from ostinato.llm.kv.store import KvStore


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What a model asks of attention.

    Attributes:
        scales: Factor on the scores, one per layer.
        windows: How many tokens, itself included, a token of that layer sees; None: all before it.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scales: tuple[float, ...]
    windows: tuple[int | None, ...]

    @property
    def group(self) -> int:
        """Query heads that share one key and value head."""
        return self.heads // self.kv_heads


class AttentionBackend(Protocol):
    """Attention over paged keys and values."""

    @property
    def name(self) -> str:
        """How it is called in options and reports."""
        ...

    @property
    def cost_follows_table(self) -> bool:
        """Whether a step costs by the width of the page table, not by the rows' real lengths.

        If so, the caller does well to give a table only as wide as the longest row needs.
        """
        ...

    @property
    def captures_prefill(self) -> bool:
        """Whether a prefill reads the layout of its chunks on the device.

        Then one recording serves all layouts of its size. If not, a prefill runs eagerly.
        """
        ...

    def decode(
        self, layer: int, q_BHD: Tensor, store: KvStore, pages_BP: Tensor, lengths_B: Tensor
    ) -> Tensor:
        """Attend one new token per row to that row's cached tokens.

        Args:
            pages_BP: int32 or int64 page numbers; entries past a row's length are ignored, and so
                is whatever the store holds past a row's length.
            lengths_B: int32 or int64 tokens cached per row, the new one included, which is already
                in the store; 0 marks padding.

        Returns:
            (B, H, D) in the dtype of `q_BHD`; padding rows are zero.

        Capture:
            Safe. Reads sizes on the device and never waits for it.
        """
        ...

    def prefill(self, layer: int, q_THD: Tensor, store: KvStore, batch: PrefillBatch) -> Tensor:
        """Attend packed prompt chunks, each to its own cached tokens and, causally, to itself.

        The chunks' own keys and values are already in the store.

        Returns:
            (T, H, D) in the dtype of `q_THD`; tokens that belong to no chunk are zero.

        Capture:
            Safe. A backend that reads the layout on the device serves every layout with as many
            tokens and chunks; one that reads `batch.row_start` serves the one it was recorded with.
        """
        ...


class Attend(Protocol):
    """What a decoder calls once per layer."""

    def __call__(
        self, layer: int, q_NHD: Tensor, k_NGD: Tensor, v_NGD: Tensor, slots_N: Tensor, /
    ) -> Tensor:
        """Store the new keys and values in `slots_N`, then attend. Returns (N, H, D)."""
        ...


@dataclass(frozen=True, slots=True)
class DecodeAttend:
    """`Attend` for one new token per row; the tables may be fixed tensors of a recorded step."""

    backend: AttentionBackend
    store: KvStore
    pages_BP: Tensor
    lengths_B: Tensor

    def __call__(
        self, layer: int, q_BHD: Tensor, k_BGD: Tensor, v_BGD: Tensor, slots_B: Tensor
    ) -> Tensor:
        self.store.write(layer, k_BGD, v_BGD, slots_B)
        return self.backend.decode(layer, q_BHD, self.store, self.pages_BP, self.lengths_B)


@dataclass(frozen=True, slots=True)
class PrefillAttend:
    """`Attend` for packed prompt chunks."""

    backend: AttentionBackend
    store: KvStore
    batch: PrefillBatch

    def __call__(
        self, layer: int, q_THD: Tensor, k_TGD: Tensor, v_TGD: Tensor, slots_T: Tensor
    ) -> Tensor:
        self.store.write(layer, k_TGD, v_TGD, slots_T)
        return self.backend.prefill(layer, q_THD, self.store, self.batch)
