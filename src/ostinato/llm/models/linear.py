"""A linear layer whose result for a token need not depend on the tokens beside it.

A matrix library picks its kernel by the number of rows, and another kernel adds in another order:
the same token gets other last bits in a batch of 1, of 8 and of 64. An invariant layer always
multiplies 16 rows at a time, filled up with zeros. On one AVX-512 thread all products of 16 rows
and more agree to the bit (float32, MKL, torch 2.13: every row count from 16 to 512 that was tried,
at eight layer sizes), so there a long prompt is still one product; with two threads they do not.

What it costs: one token then costs as much as 16, and that is 2.6 times a plain product (SmolLM2's
sizes, one thread).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from ostinato.llm.attention.blocks import ROWS

if TYPE_CHECKING:
    from torch import Tensor


class Place(Protocol):
    """Where a tensor of a checkpoint goes; a tensor of the same shape is one."""

    @property
    def shape(self) -> torch.Size: ...

    def t(self) -> Any:
        """Return the place of the transposed tensor."""

    def split(self, sizes: Any) -> Sequence[Any]:
        """Return the places of some rows each."""

    def chunk(self, count: int) -> Sequence[Any]:
        """Return the places of equal parts of the rows."""

    def copy_(self, source: Tensor) -> object:
        """Fill it."""


class Linear(nn.Module):
    """`x @ weight.T + bias`.

    Attributes:
        is_invariant: Whether a row's bits must not depend on the other rows.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, inputs: int, outputs: int, *, bias: bool, is_invariant: bool) -> None:
        super().__init__()
        self.is_invariant = is_invariant
        self.weight = unfilled(outputs, inputs)
        self.bias = unfilled(outputs) if bias else None

    def forward(self, x_NE: Tensor) -> Tensor:
        return product(x_NE, self.weight, self.bias, is_invariant=self.is_invariant)

    def places(self) -> dict[str, Place]:
        """Return where a checkpoint's weight and bias go."""
        return {name: value.data for name, value in self.named_parameters()}


class InvariantLinear(nn.Linear):
    """torch's own linear layer, with each token's bits free of the other tokens."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- torch's name
        rows = input.reshape(-1, input.shape[-1])
        out = product(rows, self.weight, self.bias, is_invariant=True)
        return out.view(*input.shape[:-1], -1)


def unfilled(*shape: int) -> nn.Parameter:
    """Return a weight to be filled in place."""
    return nn.Parameter(torch.empty(shape), requires_grad=False)


def product(x_NE: Tensor, weight: Tensor, bias: Tensor | None, *, is_invariant: bool) -> Tensor:
    """Return `x @ weight.T + bias`, (N, outputs).

    Capture:
        Safe.
    """
    rows = x_NE.shape[0]
    if not is_invariant or rows == ROWS:
        return functional.linear(x_NE, weight, bias)
    if rows > ROWS and _long_products_agree():
        return functional.linear(x_NE, weight, bias)
    tiles = functional.pad(x_NE, (0, 0, 0, -rows % ROWS)).split(ROWS)
    return torch.cat([functional.linear(tile, weight, bias) for tile in tiles])[:rows]


def _long_products_agree() -> bool:
    return (
        torch.get_num_threads() == 1
        and torch.backends.mkl.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )
