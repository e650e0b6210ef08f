"""Options that were read before are not read again, and mean the same as if they were."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from ostinato.errors import UsageError
from ostinato.llm import SamplingParams
from ostinato.serve.known_params import read_params


def test_requests_that_ask_alike_share_what_was_read() -> None:
    first = read_params({"max_tokens": 7, "stop": ["a"], "logit_bias": {3: 1.5}})
    assert first == SamplingParams(max_tokens=7, stop=("a",), logit_bias={3: 1.5})
    assert read_params({"max_tokens": 7, "stop": ("a",), "logit_bias": {3: 1.5}}) is first


@pytest.mark.parametrize(
    ("one", "another"),
    [({"n": 1}, {"n": 2}), ({"temperature": 0}, {"temperature": 0.5}), ({}, {"ignore_eos": True})],
)
def test_what_differs_is_read_apart(one: dict[str, Any], another: dict[str, Any]) -> None:
    assert read_params(one) == SamplingParams.read(one)
    assert read_params(another) == SamplingParams.read(another)


def test_true_is_no_whole_number_though_one_was_read_before() -> None:
    read_params({"n": 1})
    with pytest.raises(UsageError, match="n must be a whole number, got True"):
        read_params({"n": True})


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 2**70},
        {"temperature": nan},
        {"stop": [""]},
        {"stop": object()},
        {"tops": 1},
        {"logit_bias": dict.fromkeys(range(400), 1000.0)},
    ],
)
def test_refusals_are_those_of_the_parameters_each_time(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as told:
        SamplingParams.read(options)
    for _ in range(2):
        with pytest.raises(UsageError) as caught:
            read_params(options)
        assert str(caught.value) == str(told.value)


def test_long_options_and_schemas_are_not_kept() -> None:
    for options in (
        {"logit_bias": dict.fromkeys(range(200), 1.0)},
        {"schema": {"type": "object"}},
    ):
        assert read_params(options) == SamplingParams.read(options)
        assert read_params(options) is not read_params(options)


def test_half_a_character_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match="no lone surrogates"):
        read_params({"stop": "a\ud800"})
