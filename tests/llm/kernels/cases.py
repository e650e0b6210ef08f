"""Random inputs of a layer's kernels, and how far from exact they may be."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from ostinato.llm.kernels.matrix import Matrix
from ostinato.llm.kernels.turn_rows import Place

# Inputs are rounded before kernel and oracle compute; what differs is their own rounding.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3}
_FENCE = 4096  # numbers; keeps tensors aligned


def random(*shape: int, dtype: torch.dtype, device: torch.device, scale: float = 1.0) -> Tensor:
    """Return normal numbers."""
    return (torch.randn(*shape, device=device) * scale).to(dtype)


def fenced(tensor: Tensor) -> Tensor:
    """Return the same numbers with memory full of not-a-numbers before and behind them."""
    room = tensor.new_full((tensor.numel() + 2 * _FENCE,), torch.nan)
    inside = room[_FENCE:-_FENCE]
    inside.copy_(tensor.flatten())
    return inside.view(tensor.shape)


def apart(found: Tensor, expected: Tensor) -> float:
    """Return how far apart two results are, relatively; not a number is far."""
    distance = (found.double() - expected.double()).norm() / expected.double().norm()
    return float(torch.nan_to_num(distance, nan=torch.inf))


KINDS = pytest.mark.parametrize("kind", ["plain", "biased", "codes", "float8"])


def matrix_of(
    outputs: int, inputs: int, kind: str, dtype: torch.dtype, device: torch.device
) -> Matrix:
    """Return a random matrix: "plain", "biased", or codes with a bias, "codes" or "float8"."""
    bias = None if kind == "plain" else random(outputs, dtype=dtype, device=device)
    if kind in ("codes", "float8"):
        codes = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8, device=device)
        if kind == "float8":  # every byte but the two that are not a number
            codes = torch.where(codes & 127 == 127, codes - 1, codes).view(torch.float8_e4m3fn)
        largest = 448 if kind == "float8" else 128
        return Matrix(codes, torch.rand(outputs, device=device) / largest * inputs**-0.5, bias)
    weight = random(outputs, inputs, dtype=dtype, device=device, scale=inputs**-0.5)
    return Matrix(fenced(weight), None, bias)


@dataclass(frozen=True)
class Heads:
    """The heads of a layer."""

    q: int
    kv: int
    size: int

    @property
    def wide(self) -> int:
        """Outputs of the product of queries, keys and values."""
        return (self.q + 2 * self.kv) * self.size


def place_of(heads: Heads, rows: int, dtype: torch.dtype, device: torch.device) -> Place:
    """Return places of `rows` tokens in pages full of not-a-numbers."""
    page_tokens, pages = 4, rows // 2 + 2
    shape = (pages, page_tokens, heads.kv, heads.size)
    angle = torch.rand(rows, heads.size // 2, device=device) * 7
    return Place(
        angle.cos(),
        angle.sin(),
        torch.randperm(pages * page_tokens, device=device)[:rows],
        torch.full(shape, torch.nan, dtype=dtype, device=device),
        torch.full(shape, torch.nan, dtype=dtype, device=device),
    )


def exact(place: Place) -> Place:
    """Return the same places, with a cache of their own, in float64."""
    return Place(
        place.cos_NC.double(),
        place.sin_NC.double(),
        place.slots_N,
        torch.full_like(place.keys, torch.nan, dtype=torch.float64),
        torch.full_like(place.values, torch.nan, dtype=torch.float64),
    )


def cached(place: Place) -> Tensor:
    """Return the tokens' keys and values; everything else must still be what it was."""
    both = torch.stack((place.keys.flatten(0, 1), place.values.flatten(0, 1)))
    rest = torch.ones(both.shape[1], dtype=torch.bool, device=both.device)
    rest[place.slots_N] = False
    assert both[:, rest].isnan().all()
    return both[:, place.slots_N]
