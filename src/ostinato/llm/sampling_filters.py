"""Which tokens a row may draw from: top-k, top-p and min-p.

The stages run in transformers' order, top-k, top-p, min-p, each on what the one before it left
(vLLM runs min-p first, so there top-p counts the mass of what min-p left). Every stage ends in an
edge, the lowest logit that stays, so tokens that tie at an edge all stay: they have equal claims.
transformers' top-k keeps such ties too; its top-p keeps whichever its sort happened to put last.

An edge is found without a sort, digit by digit: the bits of a logit are a whole number in the order
of the logits, and the mass on each value of its upper digit, then on each of its lower digit, says
where the edge lies. The masses are whole numbers, so the sums are exact in any order.

This is what runs without Triton, and what `kernels/choosing.py` must agree with.

Shapes: B rows, V vocabulary, C digit values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_BITS = 16  # of each of two digits: together the bits of an f32


class _Keys(NamedTuple):
    """The logits as whole numbers, the best one's the smallest, and their two digits."""

    whole_BV: Tensor
    upper_BV: Tensor
    lower_BV: Tensor


def stays(
    logits_BV: Tensor,
    share_BV: Tensor,
    odds_BV: Tensor,
    *,
    top_k_B: Tensor,
    top_p_B: Tensor,
    min_p_B: Tensor,
) -> Tensor:
    """Return which tokens may be drawn, bool.

    Args:
        logits_BV: f32.
        share_BV: Each token's share of the likeliest one's probability, after temperature, f32.
        odds_BV: The same as whole numbers.
        top_k_B: int64; 0 is off.
        top_p_B: f32 in (0, 1]; 1 is off.
        min_p_B: f32 in [0, 1]; 0 is off.

    Capture:
        Safe. Costs some twenty passes over the vocabulary: run it where some row asks for it.
    """
    keys = _keys(logits_BV)
    vocabulary = logits_BV.shape[1]
    tokens_B = top_k_B.masked_fill(top_k_B == 0, vocabulary).clamp(max=vocabulary)
    edge_B1 = _edge(keys, torch.ones_like(odds_BV), tokens_B[:, None])
    left_BV = odds_BV.masked_fill(keys.whole_BV > edge_B1, 0)
    mass_B = (left_BV.sum(dim=-1).double() * top_p_B.double()).ceil().long()
    nearer_B1 = edge_B1.minimum(_edge(keys, left_BV, mass_B[:, None]))
    # Switched off, it cuts not even what is too unlikely to have odds.
    edge_B1 = torch.where(top_p_B[:, None] < 1, nearer_B1, edge_B1)
    return (keys.whole_BV <= edge_B1) & (share_BV >= min_p_B[:, None])


def _keys(logits_BV: Tensor) -> _Keys:
    # Zero has no sign here: with it, two equal logits would have two keys.
    bits_BV = (logits_BV + 0.0).contiguous().view(torch.int32)
    ascending_BV = bits_BV ^ ((bits_BV >> 31) & (2**31 - 1))
    whole_BV = 2**31 - 1 - ascending_BV.long()
    return _Keys(whole_BV, whole_BV >> _BITS, whole_BV & (2**_BITS - 1))


def _edge(keys: _Keys, mass_BV: Tensor, enough_B1: Tensor) -> Tensor:
    """Return the least key up to which the mass is enough, (B, 1)."""
    upper_B1, before_B1 = _digit(keys.upper_BV, mass_BV, enough_B1)
    inside_BV = mass_BV.masked_fill(keys.upper_BV != upper_B1, 0)
    lower_B1, _ = _digit(keys.lower_BV, inside_BV, enough_B1 - before_B1)
    return (upper_B1 << _BITS) + lower_B1


def _digit(digit_BV: Tensor, mass_BV: Tensor, enough_B1: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least digit up to which the mass is enough, and the mass on lesser digits."""
    mass_BC = mass_BV.new_zeros(len(mass_BV), 1 << _BITS).scatter_add_(1, digit_BV, mass_BV)
    running_BC = mass_BC.cumsum(dim=-1)
    # In a row whose logits were no numbers it may never be enough; its token is not used.
    found_B1 = (running_BC < enough_B1).sum(dim=-1, keepdim=True).clamp(max=(1 << _BITS) - 1)
    return found_B1, running_BC.gather(1, found_B1) - mass_BC.gather(1, found_B1)
