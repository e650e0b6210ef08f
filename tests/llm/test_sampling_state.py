"""The sampling state takes what fits in a row, and forgets the row before."""

from __future__ import annotations

import pytest
import torch

from llm.sampling_rows import CPU, rows_of
from ostinato.errors import UsageError
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling import SamplingState
from ostinato.llm.sampling_state import BIAS_ROOM, STOP_ROOM


def test_a_new_request_in_a_row_sees_nothing_of_the_one_before() -> None:
    used = rows_of(
        {"logit_bias": {3: 1.0}, "top_k": 4, "min_tokens": 2, "frequency_penalty": 1.0},
        vocabulary=20,
        ids=[[5, 6, 6]],
        prompt_tokens=[1],
        stop_ids=[9],
        seeds=[3],
    )
    used.join(0, [2], SamplingParams(), prompt_tokens=1, stop_ids=(), seed=8)
    fresh = rows_of({}, vocabulary=20, ids=[[2]], seeds=[8])
    assert torch.equal(used.whole_BF, fresh.whole_BF)
    assert torch.equal(used.real_BF, fresh.real_BF)
    assert torch.equal(used.counts_BV, fresh.counts_BV)


def test_what_a_preempted_row_had_produced_is_counted_again() -> None:
    state = rows_of({}, vocabulary=20, ids=[[5, 6, 6, 7]], prompt_tokens=[1])
    assert state.produced.tolist() == [3]
    assert state.counts_BV[0].nonzero().flatten().tolist() == [6, 7]
    assert state.counts_BV[0, [5, 6, 7]].tolist() == [0, 2, 1]


def test_stop_ids_outside_the_vocabulary_never_come_and_take_no_room() -> None:
    state = rows_of({}, vocabulary=20, stop_ids=[3, 20, -1, 3, 19, *range(30, 90)])
    assert [token for token in state.stop_ids[0].tolist() if token >= 0] == [3, 19]


def test_rows_that_are_set_at_once_hold_what_each_would_alone() -> None:
    # Their lines differ in length: stop ids, biases and known tokens.
    given: list[tuple[list[int], SamplingParams, tuple[int, ...]]] = [
        ([4, 5], SamplingParams(temperature=0.5, logit_bias={7: -1.5}), (2,)),
        ([1, 2, 3, 9, 9], SamplingParams(top_k=3, min_tokens=4, min_p=0.25), (3, 8, 1)),
        ([6], SamplingParams(presence_penalty=1.0, logit_bias={1: 2.0, 19: 1.0}, seed=2**63), ()),
        ([3] * 9, SamplingParams(repetition_penalty=2.0, schema={"type": "json_object"}), (5, 4)),
    ]
    alone, at_once = (SamplingState.empty(6, 20, 12, CPU) for _ in range(2))
    for state in (alone, at_once):
        for tensor in (state.whole_BF, state.real_BF, state.history_BW, state.counts_BV):
            tensor.fill_(3)  # whoever sat there before
    rows = [4, 0, 5, 2]
    arrivals = []
    for row, (ids, params, stop_ids) in zip(rows, given, strict=True):
        told = {"prompt_tokens": 1, "stop_ids": stop_ids, "seed": row - 3}
        alone.join(row, ids, params, **told)
        arrivals.append(at_once.arrival(row, ids, params, **told))
    at_once.settle(arrivals, torch.tensor(rows))
    for row, (ids, params, stop_ids) in zip(rows, given, strict=True):
        assert at_once.history_BW[row, : len(ids)].tolist() == ids
        assert [token for token in at_once.stop_ids[row].tolist() if token >= 0] == [*stop_ids]
        assert at_once.produced[row] == len(ids) - 1
        assert at_once.is_bound[row] == (params.schema is not None)
        biases = zip(at_once.biased[row].tolist(), at_once.biases[row].tolist(), strict=True)
        assert {token: bias for token, bias in biases if bias} == params.logit_bias
    for name in ("whole_BF", "real_BF", "counts_BV"):
        assert torch.equal(getattr(alone, name), getattr(at_once, name)), name


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"stop_ids": range(STOP_ROOM + 1)}, "OST5020", f"{STOP_ROOM + 1} stop ids"),
        ({"bias": range(BIAS_ROOM + 1)}, "OST5020", f"{BIAS_ROOM + 1} logit biases"),
        ({"bias": [3, 400]}, "OST5021", "token 400, the vocabulary ends at 399"),
    ],
)
def test_what_does_not_fit_in_a_row_is_refused(
    given: dict[str, range], code: str, words: str
) -> None:
    params = SamplingParams(logit_bias=dict.fromkeys(given.get("bias", ()), 1.0))
    with pytest.raises(UsageError, match=words) as caught:
        rows_of(params, vocabulary=400, stop_ids=list(given.get("stop_ids", ())))
    assert caught.value.code == code


def test_a_full_row_of_stop_ids_and_biases_fits() -> None:
    params = SamplingParams(logit_bias=dict.fromkeys(range(BIAS_ROOM), 1.0))
    state = rows_of(params, vocabulary=400, stop_ids=list(range(STOP_ROOM)))
    assert state.biases.sum() == BIAS_ROOM
    assert state.stop_ids[0].tolist() == list(range(STOP_ROOM))


def test_a_vocabulary_whose_odds_a_double_cannot_sum_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        SamplingState.empty(1, (1 << 19) + 1, 1, CPU)
    assert caught.value.code == "OST5022"
