"""Draw a token from a row's odds with a random number that depends on seed and position alone.

A row's draw must not depend on who shares its batch. So the random number is counter based: a hash
of (the row's seed, the token's position), with no state that other rows could move. And the odds
are whole numbers: sums of them are exact, so neither the batch size nor the order in which a kernel
adds can change a token.

The hash is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014;
the constants are Stafford's thirteenth variant). The seed is hashed once, when a row joins; the
position counts along the stream of that hash.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

MOST_VOCABULARY = 1 << 19
"""Odds of so many tokens still sum below 2**53, so that a double holds the sum exactly."""

_ODDS_BITS = 34
_DRAW_BITS = 40  # u <= 1 - 2**-40, so that u * sum stays below the sum
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def hash_seed(seed: int) -> int:
    """Return where the stream of `seed` begins, as a signed 64-bit number; any int will do."""
    mixed = (seed + _GOLDEN) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
    return _signed(mixed ^ (mixed >> 31))


def uniform(stream_B: Tensor, positions_B: Tensor) -> Tensor:
    """Return one number in [0, 1) per row, f64, a multiple of 2**-40.

    Args:
        stream_B: int64, from `hash_seed`.
        positions_B: int64, position of the token to draw.

    Capture:
        Safe.
    """
    mixed = stream_B + positions_B * _signed(_GOLDEN)
    mixed = (mixed ^ _shift(mixed, 30)) * _signed(_FIRST)
    mixed = (mixed ^ _shift(mixed, 27)) * _signed(_SECOND)
    mixed = mixed ^ _shift(mixed, 31)
    return _shift(mixed, 64 - _DRAW_BITS).double() * 2.0**-_DRAW_BITS


def odds(share_BV: Tensor) -> Tensor:
    """Return each token's share of the likeliest one's probability as a whole number, int64.

    The likeliest token has 2**34; one below 2**-34 of it has 0 and is never drawn.

    Capture:
        Safe.
    """
    return (share_BV * 2.0**_ODDS_BITS).long()


def draw(odds_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Return one token per row, int64: the first whose running sum of odds exceeds u * sum.

    Capture:
        Safe.
    """
    running_BV = odds_BV.cumsum(dim=-1)
    aim_B = (uniform_B * running_BV[:, -1].double()).long()
    # A row whose logits were no numbers may count past the end; it is masked, not indexed with.
    return (running_BV <= aim_B[:, None]).sum(dim=-1).clamp(max=odds_BV.shape[1] - 1)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Shift right as unsigned numbers do: torch fills in the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
