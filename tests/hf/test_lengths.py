"""Lengths: a prompt climbs a ladder of four rungs per doubling, a cache doubles."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import UsageError
from ostinato.hf.lengths import cache_length, check_buckets, prompt_bucket


@pytest.mark.parametrize(
    ("tokens", "bucket"), [(1, 16), (16, 16), (17, 20), (33, 40), (64, 64), (65, 80), (100, 112)]
)
def test_a_prompt_is_padded_to_the_next_rung(tokens: int, bucket: int) -> None:
    assert prompt_bucket(tokens) == bucket


@given(st.integers(17, 1 << 20))
def test_at_most_a_quarter_of_a_prompt_is_padding(tokens: int) -> None:
    bucket = prompt_bucket(tokens)
    assert bucket is not None
    assert tokens <= bucket <= 1.25 * tokens


def test_given_buckets_leave_longer_prompts_out() -> None:
    assert prompt_bucket(7, (4, 8)) == 8
    assert prompt_bucket(9, (4, 8)) is None


@pytest.mark.parametrize(("columns", "length"), [(1, 64), (64, 64), (65, 128), (128, 128)])
def test_a_cache_doubles(columns: int, length: int) -> None:
    assert cache_length(columns) == length


def test_a_limited_cache_has_its_whole_aligned_length_at_once_and_never_more() -> None:
    assert cache_length(10, limit=304) == 304
    assert cache_length(300, limit=300) == 304
    assert cache_length(301, limit=300) is None


@pytest.mark.parametrize("sizes", [(), (1, 2), (8, 4), (4, 4), (2.5,), (True, 4), 3, 2.5, "16"])
def test_buckets_that_cannot_be_are_refused(sizes: Any) -> None:
    with pytest.raises(UsageError, match="ascending") as caught:
        check_buckets(sizes)
    assert caught.value.code == "OST3002"
