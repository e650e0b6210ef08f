"""From logits to the next token of every row, on the device: the whole of it, inside a recording.

A row's token is a pure function of its own logits, parameters, history and position. Other rows,
the batch size and the row's index change nothing, to the bit.

How much a step has to compute depends on what its rows ask for, so there are four levels; a row
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
from ostinato.llm.sampling_draws import coldness, noise, odds, race
from ostinato.llm.sampling_filters import stays
from ostinato.llm.sampling_penalties import adjust
from ostinato.llm.sampling_state import SamplingState

__all__ = ["Level", "Sampled", "SamplingState", "level_of", "sample"]


class Level(IntEnum):
    """What a step computes between logits and token; each level serves the ones before it."""

    GREEDY = 0
    """The likeliest token."""
    DRAWN = 1
    """Temperature, and a draw from the whole vocabulary."""
    CUT = 2
    """Top-k, top-p and min-p, and a draw from what they leave."""
    FULL = 3
    """Before that, what changes logits: grammar, min_tokens, biases, penalties."""


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
    return Level.CUT if cuts else Level.DRAWN


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
    logits_BV = logits_BV.float()
    noise_BV = noise(state.stream, positions_B, logits_BV.shape[1])
    race_BV = race(logits_BV, state.temperature, noise_BV)
    if level is not Level.DRAWN:
        race_BV.masked_fill_(~_stays(logits_BV, best_B.float(), state), -torch.inf)
    drawn_B = race_BV.argmax(dim=-1)  # of several, the first
    return Sampled(torch.where(state.temperature == 0, likeliest_B, drawn_B), is_broken_B)


def _stays(logits_BV: Tensor, best_B: Tensor, state: SamplingState) -> Tensor:
    # Below the best one: whatever the temperature, nothing overflows.
    share_BV = ((logits_BV - best_B[:, None]) * coldness(state.temperature)[:, None]).exp()
    return stays(
        logits_BV,
        share_BV,
        odds(share_BV),
        top_k_B=state.top_k,
        top_p_B=state.top_p,
        min_p_B=state.min_p,
    )
