"""The resident key-value cache: fixed tensors, and a device-side position in place of a Python one.

transformers' own static layers keep a length of their own per layer (and sliding ones a Python
number, which a recording would freeze). Here all layers share one column tensor that the step
itself advances.

A prefill writes columns 0..Q-1 and attends to exactly what it has just computed, so that its
attention is the one that a plain forward would run. Columns past the prompt then hold the keys of
padding; each is overwritten by the decode step that reaches it, before any mask lets it be seen.

Shapes: B rows, H key-value heads, L columns, Q columns of this prefill, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer caches: heads, sizes and dtype, as a probe of the model saw them."""

    heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype
    device: torch.device


class ResidentLayer(CacheLayerMixin):
    """Keys and values (B, H, L, D) of one layer, written at the cache's current column."""

    is_compileable = True
    is_sliding = False

    def __init__(self, shape: LayerShape, rows: int, length: int, column: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        kind: dict[str, Any] = {"dtype": shape.dtype, "device": shape.device}
        self.keys: Tensor = torch.zeros((rows, shape.heads, length, shape.key_size), **kind)
        self.values: Tensor = torch.zeros((rows, shape.heads, length, shape.value_size), **kind)
        self.column = column
        self.length = length
        self.is_initialized = True
        self.is_prefilling = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: a recording must not allocate what outlives it."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new columns; return what the queries of this call may attend to.

        Capture:
            Safe. The column is read on the device, nothing is allocated here.
        """
        if self.is_prefilling:
            self.keys[:, :, : key_states.shape[2]].copy_(key_states)
            self.values[:, :, : value_states.shape[2]].copy_(value_states)
            return key_states, value_states
        self.keys.index_copy_(2, self.column, key_states)
        self.values.index_copy_(2, self.column, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many columns a mask spans, and the first one."""
        return (query_length if self.is_prefilling else self.length), 0

    def get_seq_length(self) -> Any:
        """Return the columns filled so far: 0 while prefilling, else a device tensor."""
        return 0 if self.is_prefilling else self.column[0]

    def get_max_length(self) -> int:
        """Return the columns there is room for."""
        return self.length

    def get_max_cache_shape(self) -> int:
        """Return the same as `get_max_length`, under its older name."""
        return self.length


class ResidentCache(Cache):
    """All layers of one batch, on one shared column.

    Attributes:
        bytes: Memory of all keys and values.
    """

    def __init__(
        self, shapes: Sequence[LayerShape], rows: int, length: int, column: Tensor
    ) -> None:
        layers = [ResidentLayer(shape, rows, length, column) for shape in shapes]
        super().__init__(layers=list(layers))
        self._resident = layers
        self._tensors = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
        self.bytes = sum(tensor.nbytes for tensor in self._tensors)

    @contextmanager
    def prefilling(self) -> Iterator[None]:
        """Within this, updates write from column 0 and attend to themselves only."""
        self._set_prefilling(True)
        try:
            yield
        finally:
            self._set_prefilling(False)

    def _set_prefilling(self, on: bool) -> None:
        for layer in self._resident:
            layer.is_prefilling = on

    def clear(self) -> None:
        """Zero everything: an infinite value of an earlier request would leak through a mask."""
        torch._foreach_zero_(self._tensors)
