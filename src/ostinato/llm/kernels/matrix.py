"""The matrix of a product, as kernels take it.

Shapes: R outputs, K inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Matrix:
    """`(x @ weight.T) * scale + bias`.

    Attributes:
        weight: (R, K), contiguous: in the tokens' type, or in codes of one byte.
        scale: (R,), float32: what a code of 1 is worth; None: the weights are no codes.
        bias: (R,), or None.
    """

    weight: Tensor
    scale: Tensor | None = None
    bias: Tensor | None = None

    @property
    def is_codes(self) -> bool:
        """Whether its weights are codes of one byte."""
        return self.weight.element_size() == 1

    @property
    def scale_place(self) -> Tensor:
        """Something to pass to a kernel in any case."""
        return self.weight if self.scale is None else self.scale

    @property
    def bias_place(self) -> Tensor:
        """Likewise."""
        return self.weight if self.bias is None else self.bias

    @property
    def flags(self) -> dict[str, bool]:
        """What a kernel is compiled for."""
        return {"HAS_SCALE": self.scale is not None, "HAS_BIAS": self.bias is not None}

    def product_plain(self, x_MK: Tensor) -> Tensor:
        """Multiply in plain torch, in the precision of `x_MK`."""
        product: Tensor = functional.linear(x_MK, self.weight.to(x_MK.dtype))
        if self.scale is not None:
            product = product * self.scale.to(x_MK.dtype)
        return product if self.bias is None else product + self.bias.to(x_MK.dtype)
