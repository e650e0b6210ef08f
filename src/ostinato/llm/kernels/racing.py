"""What each token of a row races with: `sampling_draws.py` once more, for kernels to call.

Shapes: N tokens of one or several rows.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ostinato.llm import sampling_draws

_GOLDEN: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND: tl.constexpr = tl.constexpr(0x94D049BB133111EB)
_ODD: tl.constexpr = tl.constexpr(sampling_draws.ODD)
_EVEN: tl.constexpr = tl.constexpr(sampling_draws.EVEN)
_ODDS: tl.constexpr = tl.constexpr(2.0**sampling_draws.ODDS_BITS)
NOBODY: tl.constexpr = tl.constexpr(2**31 - 1)
"""A token id above all others."""


@triton.jit
def hash_position(stream: tl.tensor, position: tl.tensor) -> Any:
    """Return the number of a position in a row's stream, uint64."""
    mixed = stream.to(tl.uint64) + position.to(tl.uint64) * _GOLDEN
    mixed = (mixed ^ (mixed >> 30)) * _FIRST
    mixed = (mixed ^ (mixed >> 27)) * _SECOND
    return mixed ^ (mixed >> 31)


@triton.jit
def noise(token_N: tl.tensor, key: tl.tensor) -> Any:
    """Return the Gumbel noise of some tokens, f32.

    Args:
        key: Of their rows, from `hash_position`; has the shape of `token_N`, or gets it.
    """
    bits_N = token_N.to(tl.uint32) ^ key.to(tl.uint32)
    bits_N = (bits_N ^ (bits_N >> 16)) * _ODD ^ (key >> 32).to(tl.uint32)
    bits_N = (bits_N ^ (bits_N >> 15)) * _EVEN
    bits_N = bits_N ^ (bits_N >> 15)
    chance_N = (bits_N.to(tl.float32) + 0.5) * (2.0**-32)
    near_N = chance_N * (0.25 + chance_N * 0.2)
    near_N = chance_N * (1 + chance_N * (0.5 + chance_N * (1 / 3 + near_N)))
    far_N = -tl.log(1 - tl.minimum(chance_N, 1 - 2.0**-24))
    return -tl.log(tl.where(chance_N < 1 / 32, near_N, far_N))


@triton.jit
def coldness(temperature: tl.tensor) -> Any:
    """Return one over the temperature, bounded; of 0, one."""
    warm = tl.where(temperature == 0, 1.0, temperature)
    return tl.minimum(tl.maximum(tl.div_rn(tl.full((), 1.0, tl.float32), warm), 1e-30), 1e30)


@triton.jit
def odds(share_N: tl.tensor) -> Any:
    """Return shares of the likeliest token's probability as whole numbers, int64."""
    return (share_N * _ODDS).to(tl.int64)


@triton.jit
def order(logit_N: tl.tensor) -> Any:
    """Return whole numbers in the order of the logits, uint32; zero has no sign."""
    bits_N = (logit_N + 0.0).to(tl.uint32, bitcast=True)
    return bits_N ^ tl.where(bits_N >> 31 == 1, 0xFFFFFFFF, 0x80000000).to(tl.uint32)
