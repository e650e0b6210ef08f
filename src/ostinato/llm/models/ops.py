"""The small operations between the matrix products of a layer, as one object that may be exchanged.

Plain torch needs a kernel for every step of them, and in decoding these kernels do next to nothing
but start: a layer of Llama has 12 (bfloat16, on a GPU) beside its four products and its attention.
Whoever fuses them writes one class with these methods and hands it to `build(ops=...)`; no model
changes.

Shapes: N tokens, E hidden, I inner, H heads (of queries and keys together, where they can be), D
head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch.nn import functional

from ostinato.llm.models.layers import ACTIVATIONS

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.models.rope import Turn


class LayerOps(Protocol):
    """What a layer does beside products and attention."""

    def add_norm(
        self, x_NE: Tensor, added_NE: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return `x + added`, and that divided by its root mean square and weighed.

        Args:
            x_NE: May be overwritten, and the sum may be it; `added_NE` may be overwritten too.
            added_NE: None: nothing is to be added.

        Capture:
            Safe.
        """
        ...

    def rotate(self, x_NHD: Tensor, turn: Turn) -> Tensor:
        """Turn each pair (i, i + D/2) of `x` by its angle, computed in float32.

        Args:
            x_NHD: A view; the last dimension is contiguous.

        Capture:
            Safe.
        """
        ...

    def gate(self, gate_up: Tensor, activation: str) -> Tensor:
        """Return `activation(gate) * up`, (N, I), from the two side by side, (N, 2 I).

        Capture:
            Safe.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainOps:
    """`LayerOps` in plain torch: what every other one must agree with."""

    def add_norm(
        self, x_NE: Tensor, added_NE: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        if added_NE is not None:
            x_NE = x_NE + added_NE
        return x_NE, functional.rms_norm(x_NE, weight.shape, weight, eps)

    def rotate(self, x_NHD: Tensor, turn: Turn) -> Tensor:
        other_NHD = x_NHD.roll(x_NHD.shape[-1] // 2, -1)
        # The angles are float32, so the products are too, whatever the weights are.
        turned = x_NHD * turn.cos_N1D + other_NHD * turn.sin_N1D
        return turned.to(x_NHD.dtype)

    def gate(self, gate_up: Tensor, activation: str) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return ACTIVATIONS[activation](gate) * up
