"""Rotary positions: angles from positions, and the turn of queries and keys by them.

Angles are computed from the positions on the device in every step (a few tiny operations), so no
table bounds the context, and a recorded step serves every position.

Shapes: N tokens, H heads, D head size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """How Llama 3.1 and later stretch slow frequencies for a longer context."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True)
class Rope:
    """The frequencies of a model.

    Attributes:
        theta: Base of the geometric series.
        factor: Every frequency is divided by it ("linear" scaling).
        llama3: Scaling by frequency; None: none.
    """

    theta: float
    factor: float = 1.0
    llama3: Llama3Scaling | None = None

    def frequencies(self, head_dim: int, device: torch.device) -> Tensor:
        """Return the D/2 angles per position, float32."""
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        frequency = 1.0 / (self.theta**exponent) / self.factor
        return frequency if self.llama3 is None else _stretched(frequency, self.llama3)


def _stretched(frequency: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Keep fast frequencies, divide slow ones by the factor, and blend in between."""
    turns = scaling.original_max_positions * frequency / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def angles(positions_N: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine, (N, 1, D/2) in float32."""
    angle = positions_N[:, None, None].to(torch.float32) * frequencies
    return angle.cos(), angle.sin()


def rotate(x_NHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + D/2) of `x` by its angle; computed in float32."""
    first, second = x_NHD.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x_NHD.dtype)
