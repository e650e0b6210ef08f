"""Rows to sample from: a state that a test fills row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling import Level, SamplingState, sample

CPU = torch.device("cpu")


def rows_of(
    *params: SamplingParams | dict[str, Any],
    vocabulary: int,
    ids: Sequence[Sequence[int]] | None = None,
    prompt_tokens: Sequence[int] | None = None,
    stop_ids: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
    tokens: int = 32,
    device: torch.device = CPU,
) -> SamplingState:
    """One row for each of `params`; without more said, the prompt is (1,) and the seed the row."""
    state = SamplingState.empty(len(params), vocabulary, tokens, device)
    for row, given in enumerate(params):
        known = ids[row] if ids is not None else (1,)
        state.join(
            row,
            known,
            given if isinstance(given, SamplingParams) else SamplingParams(**given),
            prompt_tokens=len(known) if prompt_tokens is None else prompt_tokens[row],
            stop_ids=stop_ids,
            seed=row if seeds is None else seeds[row],
        )
    return state


def known(state: SamplingState, ids: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([len(row) for row in ids], device=state.whole_BF.device)


def tokens_at(
    logits_BV: Tensor, state: SamplingState, position: int = 1, level: Level = Level.FULL
) -> list[int]:
    positions = torch.full((len(logits_BV),), position, device=logits_BV.device)
    return sample(logits_BV, state, positions, level).token_B.tolist()


def chi_square(counts: Tensor, expected: Tensor) -> float:
    """Standard deviations by which the statistic lies above its mean."""
    kept = expected >= 5
    counts, expected = counts[kept].double(), expected[kept].double()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    degrees = max(int(kept.sum()) - 1, 1)
    return (statistic - degrees) / (2 * degrees) ** 0.5
