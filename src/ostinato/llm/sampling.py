"""From logits to the next token of every row, on the device: the whole of it, inside a recording.

A row's token is a pure function of its own logits, parameters, history and position. Other rows,
the batch size and the row's index change nothing, to the bit.

How much a step has to compute depends on what its rows ask for, so there are three levels; a row
gets the same token at every level that serves it.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling_allowed import bar
from ostinato.llm.sampling_draws import draw, odds, uniform
from ostinato.llm.sampling_filters import cut
from ostinato.llm.sampling_penalties import adjust
from ostinato.llm.sampling_state import SamplingState

__all__ = ["Level", "Sampled", "SamplingState", "level_of", "sample"]


class Level(IntEnum):
    """What a step computes between logits and token; each level serves the ones before it."""

    GREEDY = 0
    """The likeliest token."""
    DRAWN = 1
    """Temperature, and a draw from the whole vocabulary."""
    FULL = 2
    """Grammar, min_tokens, biases, penalties before; top-k, top-p, min-p after the temperature."""


def level_of(params: SamplingParams) -> Level:
    """Return the lowest level that serves a request."""
    changes_logits = (
        params.schema is not None
        or params.logit_bias
        or params.min_tokens
        or params.repetition_penalty != 1
        or params.presence_penalty
        or params.frequency_penalty
    )
    if changes_logits:
        return Level.FULL
    if params.is_greedy:
        return Level.GREEDY
    cuts = params.top_k or params.top_p != 1 or params.min_p
    return Level.FULL if cuts else Level.DRAWN


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of one step.

    Attributes:
        token_B: int64; some token or other where the row is broken.
        is_broken_B: Rows with logits that are NaN or +inf, or that bar every token.
    """

    token_B: Tensor
    is_broken_B: Tensor


def sample(
    logits_BV: Tensor, state: SamplingState, positions_B: Tensor, level: Level = Level.FULL
) -> Sampled:
    """Choose the token that stands at `positions_B` in each row.

    Args:
        logits_BV: Of any floating dtype; not changed.
        state: The rows' parameters, histories and counts; not changed.
        positions_B: int64, at least 1: the tokens that the row knows, and its random number.
        level: At least what each row asks for.

    Returns:
        The tokens. Among equally likely ones a greedy row takes the lowest id.

    Capture:
        Safe. Every decision is a select on the device; shapes never change.
    """
    if level is Level.FULL:
        # A copy in any case: f32 logits would be changed in place.
        logits_BV = logits_BV.to(torch.float32, copy=True)
        bar(logits_BV, state)
        adjust(logits_BV, state, positions_B)
    best_B, likeliest_B = logits_BV.max(dim=-1)  # of several, the first; a NaN wins
    is_broken_B = best_B - best_B != 0  # unlike isfinite, two kernels
    if level is Level.GREEDY:
        return Sampled(likeliest_B, is_broken_B)
    is_greedy_B = state.temperature == 0
    temperature_B = state.temperature.masked_fill(is_greedy_B, 1.0)
    # Below the best one: whatever the temperature, nothing overflows.
    scores_BV = (logits_BV.float() - best_B.float()[:, None]) / temperature_B[:, None]
    drawn_B = _draw(scores_BV, state, positions_B, level)
    return Sampled(torch.where(is_greedy_B, likeliest_B, drawn_B), is_broken_B)


def _draw(scores_BV: Tensor, state: SamplingState, positions_B: Tensor, level: Level) -> Tensor:
    """Draw from scores of which the best is 0."""
    share_BV = scores_BV.exp()
    odds_BV = odds(share_BV)
    if level is Level.FULL:
        odds_BV = cut(
            scores_BV,
            share_BV,
            odds_BV,
            top_k_B=state.top_k,
            top_p_B=state.top_p,
            min_p_B=state.min_p,
        )
    return draw(odds_BV, uniform(state.stream, positions_B))
