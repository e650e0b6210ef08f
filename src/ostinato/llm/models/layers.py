"""The pieces that architectures share: norms, activations, the gated MLP.

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


class GatedMlp(nn.Module):
    """`down(activation(gate(x)) * up(x))`, with gate and up as one product."""

    def __init__(
        self, hidden: int, inner: int, activation: str, *, bias: bool, is_invariant: bool
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.gate_up = Linear(hidden, 2 * inner, bias=bias, is_invariant=is_invariant)
        self.down = Linear(inner, hidden, bias=bias, is_invariant=is_invariant)

    def forward(self, x_NE: Tensor) -> Tensor:
        gate, up = self.gate_up(x_NE).chunk(2, dim=-1)
        x: Tensor = self.down(self.activation(gate) * up)
        return x

    def destinations(self, prefix: str) -> dict[str, Tensor]:
        """Where each tensor of a checkpoint goes, by its name there."""
        found: dict[str, Tensor] = {}
        for kind, value in self.gate_up.named_parameters():
            found[f"{prefix}gate_proj.{kind}"], found[f"{prefix}up_proj.{kind}"] = value.chunk(2)
        return found | named(f"{prefix}down_proj.", self.down)


def named(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a module whose tensors have the same names in a checkpoint."""
    return {prefix + name: value.data for name, value in module.named_parameters()}


class Embedding(nn.Module):
    """Rows of a table, by number."""

    weight: Tensor

    def __init__(self, count: int, hidden: int) -> None:
        super().__init__()
        self.weight = unfilled(count, hidden)

    def forward(self, index_N: Tensor) -> Tensor:
        return functional.embedding(index_N, self.weight)
