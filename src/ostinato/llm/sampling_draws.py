"""Draw a token with random numbers that depend on a row's seed, the position and the token alone.

A row's draw must not depend on who shares its batch, nor on the kernel that makes it. So every
token races: it is given noise with a Gumbel distribution, and of the sums of score and noise the
largest wins. That draws each token with its softmax probability (Gumbel, 1954; known as the
Gumbel-max trick), it needs no sum over the vocabulary, and the winner of a part of the vocabulary
does not depend on the other parts: kernels look at tiles of it in any order.

The noise is counter based: a hash of (the row's seed, the token's position, the token's id), with
no state that other rows could move. Seed and position are hashed by SplitMix64 (Steele, Lea, Flood:
"Fast splittable pseudorandom number generators", 2014; the constants are Stafford's thirteenth
variant); the seed once, when a row joins, and the position counts along the stream of that hash.
Each token then mixes its id with the two halves (constants by Ettinger, "low bias 32").

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_VOCABULARY = 1 << 19
"""Odds of so many tokens still sum below 2**53, so that a double holds the sum exactly."""
ODDS_BITS = 34
ODD, EVEN = 0x21F0AAAD, 0x735A2D97

_MASK = (1 << 64) - 1
_HALF = (1 << 32) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_LEAST, _MOST = 1e-30, 1e30  # of one over the temperature: times a logit, neither 0 nor infinite
_NEAR = 1 / 32


def hash_seed(seed: int) -> int:
    """Return where the stream of `seed` begins, as a signed 64-bit number; any int will do."""
    mixed = (seed + _GOLDEN) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
    return _signed(mixed ^ (mixed >> 31))


def hash_position(stream_B: Tensor, positions_B: Tensor) -> Tensor:
    """Return the number of each row's position in its stream, int64 with 64 random bits.

    Args:
        stream_B: int64, from `hash_seed`.
        positions_B: int64, position of the token to draw.

    Capture:
        Safe.
    """
    mixed = stream_B + positions_B * _signed(_GOLDEN)
    mixed = (mixed ^ _shift(mixed, 30)) * _signed(_FIRST)
    mixed = (mixed ^ _shift(mixed, 27)) * _signed(_SECOND)
    return mixed ^ _shift(mixed, 31)


def hash_tokens(position_B: Tensor, vocabulary: int) -> Tensor:
    """Return 32 random bits for each token of each row, (B, V), int64.

    Args:
        position_B: From `hash_position`.

    Capture:
        Safe.
    """
    token_V = torch.arange(vocabulary, device=position_B.device)
    mixed = token_V ^ (position_B & _HALF)[:, None]
    mixed = ((mixed ^ (mixed >> 16)) * ODD) & _HALF
    # The second half comes between the two products: before both, one key's bits would be those of
    # another in another order.
    mixed = mixed ^ _shift(position_B, 32)[:, None]
    mixed = ((mixed ^ (mixed >> 15)) * EVEN) & _HALF
    return mixed ^ (mixed >> 15)


def noise(stream_B: Tensor, positions_B: Tensor, vocabulary: int) -> Tensor:
    """Return Gumbel noise for each token of each row, (B, V), f32.

    Capture:
        Safe.
    """
    bits_BV = hash_tokens(hash_position(stream_B, positions_B), vocabulary)
    return gumbel((bits_BV.float() + 0.5) * 2.0**-32)


def gumbel(chance: Tensor) -> Tensor:
    """Return the noise that is exceeded with a probability of `chance`, in (0, 1], f32.

    The tokens that win are those with a small chance, so that is where it must be exact: there
    -log(1 - chance) is taken from its series.
    """
    series = chance * (0.25 + chance * 0.2)
    series = chance * (1 + chance * (0.5 + chance * (1 / 3 + series)))
    # Never quite 1, which would be the logarithm of nothing.
    far = -(1 - chance.clamp(max=1 - 2.0**-24)).log()
    return -torch.where(chance < _NEAR, series, far).log()


def race(logits_BV: Tensor, temperature_B: Tensor, noise_BV: Tensor) -> Tensor:
    """Return what each token runs with; the largest wins. A barred token (-inf) stays barred.

    With a temperature below some 1e-5 the noise is less than the scores' last bit: then, as where
    it is 0, the likeliest token wins.

    Capture:
        Safe.
    """
    # The noise is finite, so nothing becomes a NaN that was none.
    return logits_BV * coldness(temperature_B)[:, None] + noise_BV


def coldness(temperature_B: Tensor) -> Tensor:
    """Return one over the temperature, bounded; 1 for rows whose temperature is 0.

    Capture:
        Safe.
    """
    return temperature_B.masked_fill(temperature_B == 0, 1.0).reciprocal().clamp(_LEAST, _MOST)


def odds(share_BV: Tensor) -> Tensor:
    """Return each token's share of the likeliest one's probability as a whole number, int64.

    The likeliest token has 2**34; one below 2**-34 of it has 0. Sums of them are exact, so neither
    the batch size nor the order in which a kernel adds can change a token.

    Capture:
        Safe.
    """
    return (share_BV * 2.0**ODDS_BITS).long()


def _shift(value: Tensor, bits: int) -> Tensor:
    """Shift right as unsigned numbers do: torch fills in the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
