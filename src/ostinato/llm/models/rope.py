"""Rotary positions: angles from positions. The turn by them is `ops.py`'s.

Angles are computed from the positions on the device in every step (a few tiny operations), so no
table bounds the context, and a recorded step serves every position.

Shapes: N tokens, D head size.
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
class YarnScaling:
    """How YaRN stretches slow frequencies: the pairs between two numbers of turns are blended.

    Attributes:
        factor: What slow frequencies are divided by.
        beta_fast, beta_slow: Turns within the original context from which on a frequency is kept,
            and up to which it is divided.
        amplitude: Factor on cosine and sine; None: the usual one, from `factor`.
        is_rounded: Whether the ends of the blend fall on whole pairs.
    """

    factor: float
    original_max_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    amplitude: float | None = None
    is_rounded: bool = True


@dataclass(frozen=True, slots=True)
class Rope:
    """The frequencies of a model.

    Attributes:
        theta: Base of the geometric series.
        factor: Every frequency is divided by it ("linear" scaling).
        llama3, yarn: Scaling by frequency; None: none.
    """

    theta: float
    factor: float = 1.0
    llama3: Llama3Scaling | None = None
    yarn: YarnScaling | None = None

    @property
    def amplitude(self) -> float:
        """Factor on cosine and sine."""
        if self.yarn is None:
            return 1.0
        if self.yarn.amplitude is not None:
            return self.yarn.amplitude
        return 0.1 * math.log(self.yarn.factor) + 1.0 if self.yarn.factor > 1 else 1.0

    def frequencies(self, head_dim: int, device: torch.device) -> Tensor:
        """Return the D/2 angles per position, float32."""
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        frequency = 1.0 / (self.theta**exponent) / self.factor
        if self.llama3 is not None:
            return _stretched(frequency, self.llama3)
        if self.yarn is not None:
            return _blended(frequency, self.yarn, self.theta, head_dim)
        return frequency


@dataclass(frozen=True, slots=True)
class Turn:
    """The angles of N tokens, float32, in the form in which whole heads are turned.

    Attributes:
        cos_N1D: The cosines twice, side by side.
        sin_N1D: The sines negated, and then as they are: the second half of a head is turned into
            the first with the sign changed.
    """

    cos_N1D: Tensor
    sin_N1D: Tensor


def _stretched(frequency: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Keep fast frequencies, divide slow ones by the factor, and blend in between."""
    turns = scaling.original_max_positions * frequency / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def _blended(frequency: Tensor, scaling: YarnScaling, theta: float, head_dim: int) -> Tensor:
    """Keep the first pairs, divide the last by the factor, and blend in between, pair by pair."""

    def pair_with(turns: float) -> float:
        wavelengths = scaling.original_max_positions / (turns * 2 * math.pi)
        return head_dim * math.log(wavelengths) / (2 * math.log(theta))

    first, last = pair_with(scaling.beta_fast), pair_with(scaling.beta_slow)
    if scaling.is_rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    if first == last:
        last += 0.001
    pair = torch.arange(head_dim // 2, dtype=torch.float32, device=frequency.device)
    kept = 1 - ((pair - first) / (last - first)).clamp(0.0, 1.0)
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def turn_by(positions_N: Tensor, frequencies: Tensor, amplitude: float) -> Turn:
    """Return the angles of the tokens at `positions_N`."""
    angle = positions_N[:, None, None].to(torch.float32) * frequencies
    cos, sin = angle.cos(), angle.sin()
    if amplitude != 1.0:
        cos, sin = cos * amplitude, sin * amplitude
    return Turn(torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1))
