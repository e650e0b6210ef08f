"""Sampling: a row's token depends on the row alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llm.sampling_rows import rows_of, tokens_at
from ostinato import graphed
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling import Level, level_of, sample

VOCABULARY = 1009
MIXED: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.6, "top_k": 50},
    {"min_p": 0.1, "presence_penalty": 0.5},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"logit_bias": {5: 3.0}, "top_k": 7, "top_p": 0.5},
]


def test_of_equally_likely_tokens_a_greedy_row_takes_the_lowest_id() -> None:
    logits = torch.randn(3, VOCABULARY).clamp(max=2.0)
    logits[0, [1000, 40, 700]] = 2.0
    logits[1] = 0.0
    logits[2] = -5.0
    logits[2, [1008, 1007]] = 3.0
    greedy = [{"temperature": 0}] * 3
    for dtype in (torch.float32, torch.bfloat16):
        for level in Level:
            tokens = tokens_at(logits.to(dtype), rows_of(*greedy, vocabulary=VOCABULARY), 1, level)
            assert tokens == [int((logits[0] == 2.0).nonzero()[0, 0]), 0, 1007]


@pytest.mark.parametrize("options", MIXED, ids=str)
def test_neither_company_nor_batch_size_nor_row_changes_a_token(options: dict[str, Any]) -> None:
    logits = torch.randn(1, VOCABULARY) * 2
    ids = [[3, 8, 8, 900]]
    alone = rows_of(options, vocabulary=VOCABULARY, ids=ids, prompt_tokens=[2], seeds=[77])
    expected = [tokens_at(logits, alone, position)[0] for position in range(4, 16)]
    for size, place in ((2, 1), (5, 0), (16, 15), (33, 17)):
        company = [MIXED[row % len(MIXED)] for row in range(size)]
        company[place] = options
        known = [[row + 1, 2, 2] for row in range(size)]
        known[place] = ids[0]
        state = rows_of(
            *company,
            vocabulary=VOCABULARY,
            ids=known,
            prompt_tokens=[2] * size,
            seeds=[77 if row == place else row for row in range(size)],
        )
        crowd = torch.randn(size, VOCABULARY) * 5
        crowd[place] = logits[0]
        if size > 2:
            crowd[(place + 1) % size] = torch.nan
        drawn = [tokens_at(crowd, state, position)[place] for position in range(4, 16)]
        assert drawn == expected


@pytest.mark.parametrize("options", MIXED, ids=str)
def test_every_level_that_serves_a_row_gives_it_the_same_token(options: dict[str, Any]) -> None:
    state = rows_of(*[options] * 64, vocabulary=VOCABULARY)
    logits = torch.randn(64, VOCABULARY).bfloat16()
    lowest = level_of(SamplingParams(**options))
    tokens = {
        tuple(tokens_at(logits, state, position=7, level=level))
        for level in Level
        if level >= lowest
    }
    assert len(tokens) == 1


def test_the_level_is_the_lowest_that_serves_the_request() -> None:
    levels = [level_of(SamplingParams(**options)) for options in MIXED]
    full, cut, drawn, greedy = Level.FULL, Level.CUT, Level.DRAWN, Level.GREEDY
    assert levels == [drawn, greedy, cut, cut, full, full, full]
    for options in (
        {"min_tokens": 1},
        {"frequency_penalty": 0.1},
        {"logit_bias": {1: 1.0}},
    ):
        assert level_of(SamplingParams(**{"temperature": 0, **options})) is full
    assert level_of(SamplingParams(temperature=0, top_p=0.5, top_k=3)) is greedy


def test_another_seed_or_position_draws_anew() -> None:
    logits = torch.zeros(1, VOCABULARY)
    state = rows_of({}, vocabulary=VOCABULARY, seeds=[1])
    other = rows_of({}, vocabulary=VOCABULARY, seeds=[2])
    mine = [tokens_at(logits, state, position)[0] for position in range(1, 50)]
    theirs = [tokens_at(logits, other, position)[0] for position in range(1, 50)]
    assert len(set(mine)) > 40
    assert sum(a == b for a, b in zip(mine, theirs, strict=True)) < 4


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_row_whose_logits_are_no_numbers_is_flagged_and_the_others_are_not(
    bad: float, level: Level
) -> None:
    logits = torch.randn(4, VOCABULARY)
    logits[1, 500] = bad
    logits[3] = -torch.inf
    state = rows_of(*[{"temperature": 0}, {}, {}, {}], vocabulary=VOCABULARY)
    sampled = sample(logits, state, torch.ones(4, dtype=torch.long), level)
    assert sampled.is_broken_B.tolist() == [False, True, False, True]
    assert ((sampled.token_B >= 0) & (sampled.token_B < VOCABULARY)).all()  # to be indexed with
    assert sampled.token_B[0] == logits[0].argmax()


@pytest.mark.parametrize("temperature", [1e-30, 1e-9, 1e30, 1e300])
def test_no_temperature_breaks_a_row(temperature: float) -> None:
    logits = torch.randn(1, VOCABULARY) * 50
    logits[0, 3] = -torch.inf
    state = rows_of({"temperature": temperature}, vocabulary=VOCABULARY)
    positions = torch.ones(1, dtype=torch.long)
    sampled = sample(logits, state, positions, Level.DRAWN)
    assert not sampled.is_broken_B.any()
    if temperature < 1:
        assert sampled.token_B.item() == logits.argmax()


def test_a_barred_stop_is_never_drawn_and_its_row_is_not_broken() -> None:
    logits = torch.full((2, 30), -5.0)
    logits[:, [0, 4]] = 9.0
    params = SamplingParams(temperature=0, min_tokens=2)
    state = rows_of(params, params, vocabulary=30, stop_ids=[0, 4], ids=[[1], [1, 2, 2]],
                    prompt_tokens=[1, 1])  # fmt: skip
    assert tokens_at(logits, state) == [1, 0]


def test_logits_and_state_are_left_as_they_were() -> None:
    logits = torch.randn(len(MIXED), VOCABULARY)
    state = rows_of(*MIXED, vocabulary=VOCABULARY)
    tensors = (logits, state.whole_BF, state.real_BF, state.history_BW, state.counts_BV)
    before = [tensor.clone() for tensor in tensors]
    for level in Level:
        tokens_at(logits, state, 3, level)
    assert all(map(torch.equal, tensors, before))


@pytest.mark.parametrize("level", Level)
def test_it_is_recorded_and_a_replay_follows_the_state(
    level: Level, backend_name: str, device: torch.device
) -> None:
    state = rows_of(*MIXED, vocabulary=VOCABULARY, device=device)
    logits = torch.randn(len(MIXED), VOCABULARY, device=device)
    positions = torch.full((len(MIXED),), 4, device=device)

    def step(logits_BV: torch.Tensor, positions_B: torch.Tensor) -> torch.Tensor:
        return sample(logits_BV, state, positions_B, level).token_B

    with graphed(step, admit_after=1, backend=backend_name, on_unfit="raise") as recorded:
        recorded(logits, positions)
        for position in (5, 6, 7):
            positions.fill_(position)
            state.join(
                0,
                [position, 2],
                SamplingParams(top_k=position),
                prompt_tokens=1,
                stop_ids=(),
                seed=position,
            )
            assert recorded(logits, positions).tolist() == tokens_at(logits, state, position, level)
        assert recorded.report().replays == 3
        assert recorded.report().reasons == {}


@pytest.mark.gpu
@pytest.mark.parametrize("level", Level)
def test_a_gpu_draws_the_same_token_in_any_batch(level: Level) -> None:
    device = torch.device("cuda:0")
    logits = (torch.randn(256, 50257) * 2).to(device)
    options = [MIXED[row % len(MIXED)] for row in range(256)]
    state = rows_of(*options, vocabulary=50257, device=device)
    positions = torch.full((256,), 9, device=device)
    whole = sample(logits, state, positions, level).token_B
    for rows in (1, 2, 7, 64):
        part = sample(logits[:rows], state.first(rows, 32), positions[:rows], level).token_B
        assert torch.equal(part, whole[:rows])
