"""Requests: what cannot be served is refused where it comes in."""

import pickle
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, fields, replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.limits import Limits
from ostinato.llm.request import FinishReason, Request, SamplingParams
from ostinato.llm.sampling_state import SamplingState


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("temperature", -0.1),
        ("temperature", inf),
        ("temperature", nan),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.5),
        ("n", 0),
        ("seed", 2**64),
        ("stop", ["", "x"]),
        ("stop_token_ids", [-1]),
        ("min_tokens", 17),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("logit_bias", {3: 101.0}),
        ("logit_bias", {-3: 1.0}),
        ("logprobs", -1),
        ("max_tokens", 2**63),
        ("top_k", 2**63),
        ("seed", 10**30),
        ("stop_token_ids", [2**63]),
        ("logit_bias", {2**63: 1.0}),
        ("temperature", 10**400),
        ("repetition_penalty", 1e-50),
        ("repetition_penalty", 1e50),
        ("stop", ["\ud800"]),
    ],
)
def test_a_value_out_of_range_is_refused_and_named(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.code == "OST5001"
    shown = {"stop_token_ids": repr(value)[1:-1], "logit_bias": "got "}.get(name, repr(value))
    assert shown[:200] in str(caught.value)


class Endless(Sequence[int]):
    """Says how long it is, and may not be walked."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError(f"token {place} was looked at")


@pytest.mark.parametrize(
    "ids", [range(10**20), Endless(10**9), Endless(2**63 - 1)], ids=["range", "list", "huge"]
)
def test_stop_tokens_without_end_are_refused_before_one_is_looked_at(ids: Sequence[int]) -> None:
    with pytest.raises(
        UsageError, match="stop_token_ids must be at most 65536 token ids"
    ) as caught:
        SamplingParams(stop_token_ids=ids)
    assert caught.value.code == "OST5001"
    assert len(str(caught.value)) < 400


def test_numpy_s_numbers_are_numbers_and_are_kept_as_python_s() -> None:
    params = SamplingParams(
        max_tokens=np.int64(5), temperature=np.float32(0.5), top_k=np.int32(3), top_p=np.float64(1),
        seed=np.uint64(2**63), n=np.uint8(2), stop_token_ids=[np.int64(7)], min_tokens=np.int16(1),
        logprobs=np.int8(2), logit_bias={np.int64(3): np.float16(1.5)},
    )  # fmt: skip
    assert params == SamplingParams(
        max_tokens=5, temperature=0.5, top_k=3, top_p=1.0, seed=2**63, n=2, stop_token_ids=[7],
        min_tokens=1, logprobs=2, logit_bias={3: 1.5},
    )  # fmt: skip
    numbers = [getattr(params, option.name) for option in fields(params)]
    numbers += [*params.stop_token_ids, *params.logit_bias, *params.logit_bias.values()]
    assert not [number for number in numbers if isinstance(number, np.generic)]
    request = Request("r", [np.int64(4), 5], priority=np.int8(-1))  # type: ignore[arg-type]
    assert (request.prompt_ids, request.priority) == ((4, 5), -1)
    assert {type(number) for number in (*request.prompt_ids, request.priority)} == {int}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("n", 0, "let n be at least 1, or leave it out"),
        ("logprobs", -1, "let logprobs be at least 0, or leave it out"),
        ("stop", [""], "let stop be texts of at least one letter, or leave it out"),
        ("logit_bias", {3: 101}, "let a value of logit_bias be at least -100 and at most 100"),
    ],
)
def test_the_remedy_reads_well_whatever_the_option_is_called(
    name: str, value: Any, remedy: str
) -> None:
    with pytest.raises(UsageError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.remedy.startswith(remedy)


@pytest.mark.parametrize("value", [np.float64(1.0), np.bool_(True), np.array([1]), "1"], ids=repr)
def test_what_numpy_does_not_call_whole_is_no_whole_number(value: Any) -> None:
    with pytest.raises(WrongTypeError, match="max_tokens must be a whole number"):
        SamplingParams(max_tokens=value)
    with pytest.raises(WrongTypeError, match="prompt_ids"):
        Request("r", [5, value])  # type: ignore[arg-type]
    with pytest.raises(WrongTypeError, match="priority"):
        Request("r", (5,), priority=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("top_k", "5"),
        ("temperature", "hot"),
        ("seed", 1.0),
        ("stop", 3),
        ("stop", [3]),
        ("stop_token_ids", "abc"),
        ("stop_token_ids", ["a"]),
        ("ignore_eos", 1),
        ("logit_bias", [(1, 2.0)]),
        ("logit_bias", {1: "much"}),
    ],
)
def test_a_value_of_the_wrong_type_is_a_type_error_too(name: str, value: Any) -> None:
    with pytest.raises(WrongTypeError, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.code == "OST5001"


def test_values_at_the_edges_are_taken() -> None:
    params = SamplingParams(
        max_tokens=1, temperature=0, top_p=1, top_k=-1, min_p=1, seed=-(2**63), min_tokens=1
    )
    assert params.is_greedy
    assert params.top_k == 0


def test_one_stop_text_is_the_same_as_a_list_of_one() -> None:
    assert SamplingParams(stop="end") == SamplingParams(stop=["end"])
    assert SamplingParams(stop="end").stop == ("end",)


def test_parameters_keep_no_hold_on_what_the_caller_may_change() -> None:
    bias = {5: 1}
    stops = ["a"]
    params = SamplingParams(logit_bias=bias, stop=stops)
    bias[6] = 2
    stops.append("b")
    assert params.logit_bias == {5: 1.0}
    assert params.stop == ("a",)


def test_parameters_are_frozen_hashable_and_cross_a_process_boundary() -> None:
    params = SamplingParams(logit_bias={1: 2.0}, schema={"type": "object"}, stop="x")
    with pytest.raises(FrozenInstanceError):
        params.n = 2  # type: ignore[misc]
    assert hash(params) == hash(pickle.loads(pickle.dumps(params)))
    assert pickle.loads(pickle.dumps(params)) == params


def test_an_unknown_option_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="max_token'") as caught:
        SamplingParams.read({"max_token": 5})
    assert caught.value.code == "OST5003"
    assert "did you mean max_tokens?" in caught.value.remedy
    with pytest.raises(UsageError, match="zzz") as caught:
        SamplingParams.read({"zzz": 5})
    assert "temperature" in caught.value.remedy


def test_read_builds_from_known_options() -> None:
    assert SamplingParams.read({"max_tokens": 5}) == SamplingParams(max_tokens=5)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="the prompt is empty") as caught:
        Request("a", ())
    assert caught.value.code == "OST5004"


def test_an_arrival_that_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="nan") as caught:
        Request("a", (1,), arrival_s=nan)
    assert caught.value.code == "OST5005"


def test_finish_reasons_are_the_words_that_clients_know() -> None:
    assert [str(reason) for reason in FinishReason] == ["stop", "length", "abort", "error"]


@pytest.mark.parametrize("name", ["max_batch", "prefill_tokens", "page_tokens", "max_waiting"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at least 1, got 0") as caught:
        Limits(**{name: 0})
    assert caught.value.code == "OST5006"


@pytest.mark.parametrize("worth", [-1.0, nan])
def test_priority_cannot_be_worth_less_than_nothing(worth: float) -> None:
    with pytest.raises(UsageError, match="priority_s"):
        Limits(priority_s=worth)


def test_the_largest_counts_that_are_taken_fit_in_a_row() -> None:
    most = 2**63 - 1
    params = SamplingParams(max_tokens=most, min_tokens=most, top_k=most, seed=2**64 - 1)
    state = SamplingState.empty(1, 8, 4, torch.device("cpu"))
    state.join(0, [1], params, prompt_tokens=1, stop_ids=(), seed=2**64 - 1)
    assert state.top_k.tolist() == state.min_tokens.tolist() == [most]
    with pytest.raises(UsageError, match="min_tokens"):
        SamplingParams(max_tokens=most, min_tokens=2**63)


def test_a_number_that_cannot_be_written_out_is_refused_like_any_other() -> None:
    with pytest.raises(UsageError, match="a int that cannot be written out") as caught:
        SamplingParams(temperature=10**5000)
    assert caught.value.code == "OST5001"


def test_a_text_as_key_of_a_bias_is_said_to_be_a_key() -> None:
    with pytest.raises(WrongTypeError, match="a key of logit_bias must be a whole number, got '5'"):
        SamplingParams(logit_bias={"5": 1.0})  # type: ignore[dict-item]


def test_biases_cannot_be_changed_and_params_are_copied_and_pickled_with_them() -> None:
    params = SamplingParams(logit_bias={5: 1.0})
    with pytest.raises(TypeError):
        params.logit_bias[6] = 2.0  # type: ignore[index]
    for twin in (pickle.loads(pickle.dumps(params)), copy(params), deepcopy(params)):
        assert twin == params
        assert twin.logit_bias == {5: 1.0}
        with pytest.raises(TypeError):
            twin.logit_bias[6] = 2.0
    assert replace(params, max_tokens=3).logit_bias == {5: 1.0}


@pytest.mark.parametrize("options", [None, 5, ["max_tokens"]])
def test_only_a_mapping_is_read(options: Any) -> None:
    with pytest.raises(WrongTypeError, match=r"SamplingParams\.read") as caught:
        SamplingParams.read(options)
    assert caught.value.code == "OST5046"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("request_id", None, "OST5009"),
        ("request_id", 5, "OST5009"),
        ("prompt_ids", None, "OST5009"),
        ("prompt_ids", "abc", "OST5009"),
        ("prompt_ids", b"abc", "OST5009"),
        ("prompt_ids", (1.5,) * 20, "OST5009"),
        ("prompt_ids", (1, True), "OST5009"),
        ("params", {"max_tokens": 5}, "OST5046"),
        ("params", None, "OST5046"),
        ("priority", "high", "OST5009"),
        ("priority", None, "OST5009"),
        ("priority", 1.5, "OST5009"),
        ("salt", None, "OST5009"),
        ("salt", b"x", "OST5009"),
        ("arrival_s", "now", "OST5005"),
        ("arrival_s", True, "OST5005"),
    ],
)
def test_a_request_with_a_value_of_the_wrong_type_is_refused(
    name: str, value: Any, code: str
) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Request(**{"request_id": "a", "prompt_ids": (1,), name: value})
    assert caught.value.code == code


def test_ids_are_judged_once_and_stay_a_tuple_like_any_other() -> None:
    request = Request("a", [1, np.int64(2)])  # type: ignore[arg-type]
    ids = request.prompt_ids
    assert Request("b", ids).prompt_ids is ids
    assert (repr(ids), ids) == ("(1, 2)", (1, 2))
    assert pickle.loads(pickle.dumps(request)) == deepcopy(request) == request
    with pytest.raises(WrongTypeError, match="got True"):
        Request("c", (*ids, True))
    with pytest.raises(WrongTypeError, match="got True"):
        Request("c", ids + (True,))  # noqa: RUF005 - whoever adds to them makes other ids


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("priority", 10**400, "OST5009"), ("arrival_s", 10**400, "OST5005")],
)
def test_a_request_with_a_number_past_all_use_is_refused(name: str, value: Any, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        Request(**{"request_id": "a", "prompt_ids": (1,), name: value})
    assert caught.value.code == code


@pytest.mark.parametrize("value", [inf, nan])
def test_a_number_without_end_is_told_what_it_lacks(value: float) -> None:
    with pytest.raises(UsageError, match="temperature must be at least 0 and finite, got"):
        SamplingParams(temperature=value)
