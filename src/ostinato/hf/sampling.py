"""From logits to the next token, on the device: transformers' processors and its draw.

The stages run in transformers' order and with its arithmetic. A draw is the exponential race that
`torch.multinomial` runs for one sample, without the look at the probabilities that it takes on the
host: the same distribution and, on a CPU, the same tokens under the same seed.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.hf.plan import Plan
from ostinato.hf.state import DecodeState


def emit(state: DecodeState, logits_BV: Tensor, plan: Plan, *, is_first: bool) -> None:
    """Choose each row's next token, append it, and advance flags and counters.

    Capture:
        Safe. Every decision is a device-side select; shapes never change.
    """
    scores_BV = process(state, logits_BV.float(), plan, is_first=is_first)
    token_B = _pick(scores_BV, plan)
    unfinished = (~state.finished_B).any().reshape(1)
    if plan.stops:
        token_B = torch.where(state.finished_B, state.pad, token_B)
        state.finished_B.logical_or_((token_B[:, None] == state.eos_E).any(dim=1))
    if plan.penalises:
        state.seen_BV.scatter_(1, token_B[:, None].clamp(max=state.seen_BV.shape[1] - 1), True)
    state.new_tokens_BL.index_copy_(1, state.produced, token_B[:, None])
    state.tokens_B1.copy_(token_B[:, None])
    state.width.add_(unfinished)
    state.produced.add_(1)


def process(state: DecodeState, scores_BV: Tensor, plan: Plan, *, is_first: bool) -> Tensor:
    """Apply the stages of `plan` to f32 scores and return the new ones."""
    if plan.penalises:
        penalised = torch.where(scores_BV < 0, scores_BV * state.penalty, scores_BV / state.penalty)
        scores_BV = torch.where(state.seen_BV, penalised, scores_BV)
    if plan.holds_off_eos:
        barred_V = state.held_off_V & (state.produced < state.min_new)
        scores_BV = scores_BV.masked_fill(barred_V, -torch.inf)
    if plan.suppresses:
        scores_BV = scores_BV.masked_fill(state.suppressed_V, -torch.inf)
    if plan.suppresses_first and is_first:
        scores_BV = scores_BV.masked_fill(state.suppressed_first_V, -torch.inf)
    if plan.tempers:
        scores_BV = scores_BV / state.temperature
    if plan.top_k:
        kept = torch.topk(scores_BV, min(plan.top_k, scores_BV.shape[1])).values
        scores_BV = scores_BV.masked_fill(scores_BV < kept[:, -1:], -torch.inf)
    if plan.cuts_top_p:
        scores_BV = _cut_top_p(scores_BV, state.tail)
    if plan.cuts_min_p:
        scores_BV = _cut_min_p(scores_BV, state.min_p)
    if plan.normalises:
        scores_BV = scores_BV.log_softmax(dim=-1)
    return scores_BV


def _cut_top_p(scores_BV: Tensor, tail: Tensor) -> Tensor:
    ascending, order = torch.sort(scores_BV, descending=False)
    removed = ascending.softmax(dim=-1).cumsum(dim=-1) <= tail
    removed[:, -1:] = False
    return scores_BV.masked_fill(removed.scatter(1, order, removed), -torch.inf)


def _cut_min_p(scores_BV: Tensor, min_p: Tensor) -> Tensor:
    probabilities = scores_BV.softmax(dim=-1)
    best = probabilities.amax(dim=-1, keepdim=True)
    removed = (probabilities < min_p * best) & (probabilities < best)
    return scores_BV.masked_fill(removed, -torch.inf)


def _pick(scores_BV: Tensor, plan: Plan) -> Tensor:
    if not plan.samples:
        return scores_BV.argmax(dim=-1)
    probabilities = scores_BV.softmax(dim=-1)
    race = torch.empty_like(probabilities).exponential_(1)
    return (probabilities / race).argmax(dim=-1)
