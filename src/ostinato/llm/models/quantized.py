"""Weights of products in one byte each: int8 or float8, with a scale for every output.

A decode step is the reading of its weights, so half the bytes is half the time. Activations stay as
they are: a number is `code * scale`, and the scale of an output is taken out of the sum. Codes are
symmetric and per channel, the layout of torchao's `Int8WeightOnlyConfig` and
`Float8WeightOnlyConfig`. Embeddings, norms, biases and the output head keep their type.

Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from ostinato.errors import UsageError
from ostinato.llm.models.linear import InvariantLinear, Linear, product, unfilled

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.models.decoder import Decoder
    from ostinato.llm.models.linear import Place

Quantization = Literal["none", "int8", "fp8"]

_CODES: Mapping[str, torch.dtype] = MappingProxyType(
    {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
)
_LARGEST: Mapping[torch.dtype, float] = MappingProxyType(
    {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
)
_ROWS_AT_ONCE = 4096
"""Rows that become codes together; loading needs no more room than their float32 copy."""


class QuantizedLinear(Linear):
    """`(x @ weight.T) * scale + bias`.

    Attributes:
        weight: Codes, (O, I), int8 or float8_e4m3fn.
        scale: (O,), float32: what a code of 1 is worth.
    """

    scale: Tensor

    def __init__(self, like: Linear, codes: torch.dtype) -> None:
        outputs, inputs = like.weight.shape
        super().__init__(inputs, outputs, bias=False, is_invariant=like.is_invariant)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=codes), requires_grad=False)
        self.scale = nn.Parameter(torch.empty(outputs, dtype=torch.float32), requires_grad=False)
        self.bias = None if like.bias is None else unfilled(outputs).to(like.bias.dtype)

    def forward(self, x_NI: Tensor) -> Tensor:
        """Return (N, O). Plain torch has no such product: the codes become numbers on the way."""
        numbers_OI = as_numbers(self.weight, x_NI.dtype)
        y = product(x_NI, numbers_OI, None, is_invariant=self.is_invariant)
        y.mul_(self.scale)  # in float32, rounded once, and no float32 of a prompt's size is kept
        return y if self.bias is None else y + self.bias

    def places(self) -> dict[str, Place]:
        found = super().places()
        del found["scale"]
        found["weight"] = Codes(self.weight.data, self.scale.data)
        return found

    def fill_with_noise(self, deviation: float, generator: torch.Generator) -> None:
        """Fill codes and scales as those of normal numbers would be."""
        places = self.weight.data.split(_ROWS_AT_ONCE), self.scale.data.split(_ROWS_AT_ONCE)
        for codes_OI, scale_O in zip(*places, strict=True):
            noise_OI = torch.empty(codes_OI.shape, dtype=torch.float32, device=codes_OI.device)
            Codes(codes_OI, scale_O).copy_(noise_OI.normal_(0.0, deviation, generator=generator))


@dataclass(frozen=True, slots=True)
class Codes:
    """Where a checkpoint's matrix goes as codes: some rows of a layer's.

    Attributes:
        codes_OI: A view of the layer's codes.
        scale_O: A view of its scales.
        is_turned: Whether the checkpoint's matrix is (I, O).
    """

    codes_OI: Tensor
    scale_O: Tensor
    is_turned: bool = False

    @property
    def shape(self) -> torch.Size:
        return self.codes_OI.t().shape if self.is_turned else self.codes_OI.shape

    def t(self) -> Codes:
        """Return the place of the same matrix the other way round."""
        return Codes(self.codes_OI, self.scale_O, not self.is_turned)

    def split(self, sizes: Sequence[int]) -> list[Codes]:
        """Return the places of some rows each."""
        parts = zip(self.codes_OI.split(list(sizes)), self.scale_O.split(list(sizes)), strict=True)
        return [Codes(codes, scale) for codes, scale in parts]

    def chunk(self, count: int) -> list[Codes]:
        """Return the places of equal parts of the rows."""
        return self.split([len(self.scale_O) // count] * count)

    def copy_(self, matrix: Tensor) -> None:
        """Quantise a matrix into its place. NaN and infinity make a whole row NaN or zero."""
        rows_OI = matrix.t() if self.is_turned else matrix
        places = zip(
            rows_OI.split(_ROWS_AT_ONCE),
            self.codes_OI.split(_ROWS_AT_ONCE),
            self.scale_O.split(_ROWS_AT_ONCE),
            strict=True,
        )
        for rows, codes, scale in places:
            new_codes, new_scale = quantise(rows.to(codes.device), codes.dtype)
            codes.copy_(new_codes)
            scale.copy_(new_scale)


def as_numbers(codes_OI: Tensor, number: torch.dtype) -> Tensor:
    """Return codes as numbers of a type, exactly; without their scale.

    Capture:
        Safe.
    """
    if codes_OI.is_cuda and _has_triton():
        from ostinato.llm.kernels.widen_codes import can_widen, widen_codes

        if can_widen(codes_OI, number):
            return widen_codes(codes_OI)
    return codes_OI.to(number)


@functools.cache
def _has_triton() -> bool:
    """Return whether triton is there: not every machine has it."""
    return importlib.util.find_spec("triton") is not None


def quantise(rows_OI: Tensor, codes: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return codes (O, I) and scales (O,), so that `codes * scale` is nearest to the rows.

    A row of zeros has the scale 1. Rounding is to the nearest code, ties to even.
    """
    largest = _LARGEST[codes]
    rows_OI = rows_OI.float()
    scale_O = rows_OI.abs().amax(1) / largest
    scale_O = torch.where(scale_O == 0, 1.0, scale_O)
    steps_OI = rows_OI / scale_O[:, None]
    if not codes.is_floating_point:
        steps_OI = steps_OI.round()
    # Division may end a hair above the largest code, which float8 would make NaN.
    return steps_OI.clamp(-largest, largest).to(codes), scale_O


def quantise_layers(decoder: Decoder, kind: Quantization) -> None:
    """Make every product of the decoder's layers one of codes. Weights are not filled yet.

    Raises:
        UsageError: OST5310, the decoder runs on transformers' code.
    """
    if kind == "none":
        return
    if decoder.path != "native" or any(
        isinstance(module, InvariantLinear) for module in decoder.modules()
    ):
        raise UsageError(
            f"quantize is {kind!r}, and {decoder.config.architecture} runs on transformers' code, "
            "whose products stay as they are",
            code="OST5310",
            remedy="leave quantize out, or take a model that the engine has its own decoder for",
        )
    for parent in list(decoder.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear):
                setattr(parent, name, QuantizedLinear(child, _CODES[kind]))
