"""Allowed tokens: a row with a grammar never draws another, and other rows see nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
import torch
from torch import Tensor

from llm.sampling_rows import rows_of, tokens_at
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling import Level, SamplingState, level_of, sample
from ostinato.llm.sampling_logprobs import logprobs
from ostinato.llm.sampling_state import words_for

BOUND: dict[str, Any] = {"schema": {"type": "object"}}


def words(allowed: Collection[int], vocabulary: int) -> Tensor:
    packed = [0] * words_for(vocabulary)
    for token in allowed:
        packed[token // 32] |= 1 << token % 32
    return torch.tensor(packed, dtype=torch.int64).to(torch.int32)


def allow(state: SamplingState, row: int, allowed: Collection[int], vocabulary: int) -> None:
    state.allow(torch.tensor([row]), words(allowed, vocabulary)[None])


@pytest.mark.parametrize("vocabulary", [2, 31, 32, 33, 45, 64])
def test_each_single_token_can_be_the_only_one_allowed(vocabulary: int) -> None:
    greedy = rows_of(*[{"temperature": 0, **BOUND}] * vocabulary, vocabulary=vocabulary)
    drawn = rows_of(*[BOUND] * vocabulary, vocabulary=vocabulary)
    logits = torch.randn(vocabulary, vocabulary, generator=torch.Generator().manual_seed(0)) * 20
    for state in (greedy, drawn):
        for row in range(vocabulary):
            allow(state, row, [row], vocabulary)
        assert tokens_at(logits, state) == list(range(vocabulary))


@pytest.mark.parametrize("kind", [{}, {"temperature": 0}, {"top_k": 2}, {"logit_bias": {7: 100.0}}])
def test_only_allowed_tokens_are_drawn_and_as_if_there_were_no_others(kind: dict[str, Any]) -> None:
    vocabulary, allowed = 45, [3, 31, 32, 44]
    logits = torch.randn(60, vocabulary, generator=torch.Generator().manual_seed(1)) * 3
    bound = rows_of(*[{**kind, **BOUND}] * 60, vocabulary=vocabulary)
    free = rows_of(*[kind] * 60, vocabulary=vocabulary)
    for row in range(60):
        allow(bound, row, allowed, vocabulary)
    alone = torch.full_like(logits, -torch.inf)
    alone[:, allowed] = logits[:, allowed]
    found = tokens_at(logits, bound)
    assert found == tokens_at(alone, free)
    assert len(set(found)) == 4


def test_rows_without_a_grammar_are_left_as_they_are_whatever_their_bits() -> None:
    vocabulary = 77
    logits = torch.randn(64, vocabulary, generator=torch.Generator().manual_seed(2))
    state = rows_of(*[{}, {"top_k": 5}] * 32, vocabulary=vocabulary)
    for row in range(64):
        allow(state, row, range(vocabulary), vocabulary)
    expected = tokens_at(logits, state)
    for row in range(64):
        allow(state, row, [], vocabulary)
    assert tokens_at(logits, state) == expected


def test_a_row_that_may_go_nowhere_is_broken_and_its_neighbours_are_not() -> None:
    state = rows_of(BOUND, {}, BOUND, vocabulary=40)
    allow(state, 0, [], 40)
    allow(state, 2, [39], 40)
    sampled = sample(torch.zeros(3, 40), state, torch.ones(3, dtype=torch.long))
    assert sampled.is_broken_B.tolist() == [True, False, False]


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_logit_that_is_no_number_is_seen_behind_a_grammar_too(number: float) -> None:
    state = rows_of(BOUND, vocabulary=40)
    allow(state, 0, [1], 40)
    logits = torch.zeros(1, 40)
    logits[0, 30] = number
    assert sample(logits, state, torch.ones(1, dtype=torch.long)).is_broken_B.tolist() == [True]


def test_a_grammar_that_allows_only_the_end_gets_it_before_min_tokens() -> None:
    state = rows_of({"min_tokens": 5, **BOUND}, vocabulary=40, stop_ids=[9])
    allow(state, 0, [9], 40)
    sampled = sample(torch.zeros(1, 40), state, torch.ones(1, dtype=torch.long))
    assert (sampled.token_B.tolist(), sampled.is_broken_B.tolist()) == ([9], [False])


def test_no_bias_lifts_a_barred_token() -> None:
    state = rows_of({"temperature": 0, "logit_bias": {5: 100.0}, **BOUND}, vocabulary=40)
    allow(state, 0, [6], 40)
    assert tokens_at(torch.zeros(1, 40), state) == [6]


def test_reported_probabilities_stay_the_models_own() -> None:
    state = rows_of({"temperature": 0, **BOUND}, vocabulary=40)
    allow(state, 0, [6], 40)
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(3))
    before = logits.clone()
    token = sample(logits, state, torch.ones(1, dtype=torch.long)).token_B
    assert torch.equal(logits, before)
    expected = before.log_softmax(-1)[0, 6]
    assert torch.equal(logprobs(logits, token, 1).chosen_B[0], expected)


def test_a_grammar_asks_for_the_full_level() -> None:
    assert level_of(SamplingParams(temperature=0, **BOUND)) is Level.FULL


def test_who_joins_a_row_after_a_grammar_is_free() -> None:
    state = rows_of(BOUND, vocabulary=40)
    allow(state, 0, [6], 40)
    state.join(0, (1,), SamplingParams(temperature=0), prompt_tokens=1, stop_ids=(), seed=0)
    logits = torch.zeros(1, 40)
    logits[0, 17] = 1
    assert tokens_at(logits, state) == [17]
