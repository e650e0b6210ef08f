"""Rows that run, to choose tokens for: a resident state that a test fills row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.llm.kernels.head_tiles import Leaders, logit_tiles
from ostinato.llm.kernels.settling import settle
from ostinato.llm.kernels.weighing import weigh
from ostinato.llm.params import SamplingParams
from ostinato.llm.resident_state import ResidentState
from ostinato.llm.sampling import Level, sample

POSITION = 4


def running(
    options: Sequence[Mapping[str, Any]],
    vocabulary: int,
    device: torch.device,
    seeds: Sequence[int] | None = None,
) -> ResidentState:
    """A row for each of `options` that knows five tokens and may have many more."""
    state = ResidentState.empty(
        len(options),
        vocabulary=vocabulary,
        pages=4,
        page_tokens=8,
        ring=3,
        most_logprobs=0,
        device=device,
    )
    for row, given in enumerate(options):
        state.sampling.join(
            row,
            [1, 2, 1, 0, 1],
            SamplingParams(**given),
            prompt_tokens=2,
            stop_ids=(),
            seed=row if seeds is None else seeds[row],
        )
    state.place_BF.copy_(torch.tensor([1, POSITION, 20]).expand(len(options), -1))
    state.output_BF.zero_()
    return state


def chosen(logits_BV: Tensor, state: ResidentState, *, draws: bool = True) -> list[int]:
    """The tokens that the kernels choose; the rows move on by them."""
    leaders: Leaders = logit_tiles(logits_BV, state, draws=draws)
    weighed = weigh(logits_BV, leaders, state) if draws else None
    token_B, _ = settle(
        leaders,
        state,
        logits_BV=logits_BV if draws else None,
        weighed=weighed,
        keeps_history=False,
    )
    return token_B.tolist()


def expected(logits_BV: Tensor, state: ResidentState) -> list[int]:
    """The tokens that plain torch chooses."""
    return sample(logits_BV, state.sampling, state.position + 1, Level.CUT).token_B.tolist()
