"""Penalties, bias and min_tokens change logits as vLLM and OpenAI define it."""

from __future__ import annotations

import torch
from torch import Tensor

from llm.sampling_rows import known, rows_of
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling_penalties import adjust

VOCABULARY = 50


def by_definition(
    logits_V: Tensor, params: SamplingParams, ids: list[int], prompt: int, stops: list[int]
) -> list[float]:
    """The formulas, one token at a time."""
    output = ids[prompt:]
    changed = []
    for token, logit in enumerate(logits_V.tolist()):
        if token in stops and len(output) < params.min_tokens:
            logit = -float("inf")
        logit += params.logit_bias.get(token, 0.0)
        if token in ids:
            repetition = params.repetition_penalty
            logit = logit / repetition if logit > 0 else logit * repetition
        logit -= params.frequency_penalty * output.count(token)
        logit -= params.presence_penalty * (token in output)
        changed.append(logit)
    return changed


PARAMS = [
    SamplingParams(),
    SamplingParams(repetition_penalty=1.7),
    SamplingParams(repetition_penalty=0.6),
    SamplingParams(presence_penalty=0.9),
    SamplingParams(frequency_penalty=-0.7),
    SamplingParams(logit_bias={0: 5.0, 7: -100.0, 49: 2.5}),
    SamplingParams(min_tokens=9, max_tokens=20),
    SamplingParams(min_tokens=3, max_tokens=20),
    SamplingParams(
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        logit_bias={3: 4.0, 0: -1.0},
        min_tokens=10,
        max_tokens=20,
    ),
]
IDS = [[3, 7, 7, 0, 49, 3, 3, 11][: 3 + row % 6] for row in range(len(PARAMS))]
PROMPTS = [1 + row % 3 for row in range(len(PARAMS))]


def test_logits_change_as_the_formulas_say() -> None:
    stops = [0, 7, 20]
    state = rows_of(
        *PARAMS, vocabulary=VOCABULARY, ids=IDS, prompt_tokens=PROMPTS, stop_ids=stops, tokens=9
    )
    logits = torch.randn(len(PARAMS), VOCABULARY) * 3
    changed = logits.clone()
    adjust(changed, state, known(state, IDS))
    for row, params in enumerate(PARAMS):
        expected = by_definition(logits[row], params, IDS[row], PROMPTS[row], stops)
        torch.testing.assert_close(changed[row], torch.tensor(expected))


def test_without_penalties_no_bit_of_a_logit_changes() -> None:
    state = rows_of({}, vocabulary=VOCABULARY, ids=[[3, 0, 3]], prompt_tokens=[1])
    logits = torch.randn(1, VOCABULARY)
    changed = logits.clone()
    adjust(changed, state, torch.tensor([3]))
    assert torch.equal(changed, logits)


def test_the_prompt_counts_for_repetition_alone() -> None:
    params = {"presence_penalty": 1.0, "frequency_penalty": 1.0}
    state = rows_of(params, vocabulary=VOCABULARY, ids=[[5, 5]], prompt_tokens=[2])
    logits = torch.ones(1, VOCABULARY)
    adjust(logits, state, torch.tensor([2]))
    assert (logits == 1).all()


def test_what_lies_past_the_tokens_known_is_not_penalised() -> None:
    state = rows_of({"repetition_penalty": 2.0}, vocabulary=VOCABULARY, ids=[[5, 6, 7]])
    logits = torch.ones(1, VOCABULARY)
    adjust(logits, state, torch.tensor([2]))
    assert logits[0, [5, 6, 7]].tolist() == [0.5, 0.5, 1.0]


def test_a_logit_that_is_no_number_stays_so_where_stops_are_barred() -> None:
    params = {"min_tokens": 2, "logit_bias": {4: 1.0}, "repetition_penalty": 2.0}
    state = rows_of(params, vocabulary=VOCABULARY, stop_ids=[4])
    logits = torch.ones(1, VOCABULARY)
    logits[0, 4] = torch.nan
    adjust(logits, state, torch.tensor([1]))
    assert logits[0, 4].isnan()


def test_a_noted_token_is_penalised_from_the_next_step_on() -> None:
    state = rows_of({"frequency_penalty": 0.5}, {}, vocabulary=VOCABULARY, ids=[[1], [1]])
    emits = torch.tensor([True, False])
    for position in (1, 2):
        state.note(torch.tensor([9, 0]), torch.full((2,), position), emits)
    logits = torch.ones(2, VOCABULARY)
    adjust(logits, state, torch.tensor([3, 1]))
    assert logits[:, 9].tolist() == [0.0, 1.0]
    assert logits[1].tolist() == [1.0] * VOCABULARY
    assert state.produced.tolist() == [2, 0]
