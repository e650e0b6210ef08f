"""The pieces that architectures share: norms, activations, embeddings.

Shapes: N tokens, E hidden.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import nn
from torch.nn import functional

from ostinato.llm.models.linear import Linear, unfilled

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.models.linear import Place

_tanh_gelu = functools.partial(functional.gelu, approximate="tanh")

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "silu": functional.silu,
        "swish": functional.silu,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_new": _tanh_gelu,
        "gelu_fast": _tanh_gelu,
        "gelu_pytorch_tanh": _tanh_gelu,
    }
)


class RmsNorm(nn.Module):
    """Divide by the root of the mean square over the last dimension, then weigh."""

    weight: Tensor

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.size, self.eps = (size,), eps
        self.weight = unfilled(size)

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.size, self.weight, self.eps)


class LayerNorm(nn.Module):
    """Subtract the mean, divide by the deviation, weigh and shift."""

    weight: Tensor
    bias: Tensor

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.size, self.eps = (size,), eps
        self.weight, self.bias = unfilled(size), unfilled(size)

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.size, self.weight, self.bias, self.eps)


def named(prefix: str, module: nn.Module) -> dict[str, Place]:
    """Return the places of a module's weights, which have the same names in a checkpoint."""
    if isinstance(module, Linear):
        return {prefix + name: place for name, place in module.places().items()}
    return {prefix + name: value.data for name, value in module.named_parameters()}


class Embedding(nn.Module):
    """Rows of a table, by number."""

    weight: Tensor

    def __init__(self, count: int, hidden: int) -> None:
        super().__init__()
        self.weight = unfilled(count, hidden)

    def forward(self, index_N: Tensor) -> Tensor:
        return functional.embedding(index_N, self.weight)
