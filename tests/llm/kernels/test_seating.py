"""Seating in one kernel leaves a state as the plain copies do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from ostinato.llm.params import SamplingParams
from ostinato.llm.resident_moves import Coming, Moves
from ostinato.llm.resident_state import ResidentState

VOCABULARY = 40
PARAMS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"top_k": 4, "top_p": 0.5, "logit_bias": {3: 1.5, 39: -2.0}},
    {"presence_penalty": 1.0, "min_tokens": 2, "min_p": 0.25},
]


def state_on(device: torch.device) -> ResidentState:
    """A state in which nothing is as it was made."""
    state = ResidentState.empty(
        6,
        vocabulary=VOCABULARY,
        pages=3000,
        page_tokens=1,
        ring=3,
        most_logprobs=0,
        device=device,
    )
    for number, tensor in enumerate(tensors(state)):
        tensor.fill_(number + 7)
    return state


def tensors(state: ResidentState) -> list[Tensor]:
    sampling = state.sampling
    kept = (sampling.whole_BF, sampling.real_BF, sampling.history_BW, sampling.counts_BV)
    return [*kept, state.place_BF, state.output_BF]


def come(moves: Moves, state: ResidentState, row: int, tokens: int, prompt: int) -> None:
    arrival = state.sampling.arrival(
        row,
        [(row + place * 3) % VOCABULARY for place in range(tokens)],
        SamplingParams(**PARAMS[row % len(PARAMS)]),
        prompt_tokens=prompt,
        stop_ids=(2, row),
        seed=row,
    )
    moves.come(Coming(arrival, left=9, is_bound=row == 4))


def test_rows_that_come_and_go_are_set_and_no_others(kernel_device: torch.device) -> None:
    states = [state_on(kernel_device) for _ in range(2)]
    for state, is_fused in zip(states, (False, True), strict=True):
        moves = Moves(state, is_fused=is_fused)
        moves.leave(3)
        come(moves, state, 1, tokens=5, prompt=5)
        come(moves, state, 4, tokens=2500, prompt=2480)  # it had produced 20
        moves.send()
        moves.leave(1)
        come(moves, state, 0, tokens=1, prompt=1)
        moves.leave(0)
        come(moves, state, 5, tokens=1, prompt=1)
        come(moves, state, 3, tokens=7, prompt=6)
        moves.send()
        moves.send()  # there is nothing more to send
    for number, (plain, fused) in enumerate(zip(*map(tensors, states), strict=True)):
        # A copy to many rows pads the shorter ones with zeros; nobody reads that far.
        if number == 2:
            for row, known in ((1, 5), (4, 2500), (3, 7), (5, 1)):
                assert torch.equal(plain[row, :known], fused[row, :known])
            assert (fused[[0, 2]] == 9).all()
            continue
        assert torch.equal(plain, fused), dataclasses.fields(states[0])
    assert states[1].ending.tolist() == [4, 4, 12, 0, 5, 0]
