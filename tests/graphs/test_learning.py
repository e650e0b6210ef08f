"""Learning sizes: the fewest padded rows that so many recordings allow, exactly."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import UsageError, WrongTypeError
from ostinato.graphs import learning
from ostinato.graphs.learning import best_sizes, padded_share

TRACE = Path(__file__).parents[3] / "shared/data/traces/azure_llm_2023_conv.csv"


def padded_rows(sizes: tuple[int, ...], trace: list[int]) -> int:
    return sum(min(bucket for bucket in sizes if bucket >= size) - size for size in trace)


def fewest_padded_rows_of_all_choices(trace: list[int], max_graphs: int) -> int:
    distinct = sorted(set(trace))
    return min(
        padded_rows((*smaller, distinct[-1]), trace)
        for count in range(min(max_graphs, len(distinct)))
        for smaller in combinations(distinct[:-1], count)
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=40).filter(lambda t: len(set(t)) <= 11),
    st.integers(1, 6),
)
def test_no_other_choice_of_sizes_pads_less(trace: list[int], max_graphs: int) -> None:
    sizes = best_sizes(trace, max_graphs)
    assert padded_rows(sizes, trace) == fewest_padded_rows_of_all_choices(trace, max_graphs)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 9))
def test_sizes_are_seen_ones_ascending_within_the_limit_and_hold_every_call(
    trace: list[int], max_graphs: int
) -> None:
    sizes = best_sizes(trace, max_graphs)
    assert len(sizes) == min(max_graphs, len(set(trace)))
    assert list(sizes) == sorted(set(sizes))
    assert set(sizes) <= set(trace)
    assert sizes[-1] == max(trace)


def test_a_frequent_size_gets_its_own_bucket_before_a_rare_one() -> None:
    assert best_sizes([10] * 1000 + [50] * 3 + [100], max_graphs=2) == (10, 100)
    assert best_sizes([10] + [50] * 1000 + [100], max_graphs=2) == (50, 100)


def test_enough_graphs_leave_no_padding() -> None:
    assert best_sizes([5, 3, 9, 3], max_graphs=50) == (3, 5, 9)


def test_empty_batches_in_a_trace_are_skipped() -> None:
    assert best_sizes([0, 4, 0], max_graphs=3) == (4,)


def test_any_iterable_of_whole_numbers_is_a_trace() -> None:
    numpy = pytest.importorskip("numpy")
    assert best_sizes((n for n in (4, 8)), 1) == (8,)
    assert best_sizes(numpy.array([4, 8, 8]), 5) == (4, 8)
    assert all(type(size) is int for size in best_sizes(numpy.array([4, 8, 8]), 5))
    assert best_sizes(Counter({4: 9, 8: 1}).elements(), 5) == (4, 8)


@pytest.mark.parametrize("trace", [[], [0, 0], [3, -1]])
def test_a_trace_without_calls_or_with_negative_sizes_is_refused(trace: list[int]) -> None:
    with pytest.raises(UsageError) as caught:
        best_sizes(trace, 4)
    assert caught.value.code == "OST1007"


@pytest.mark.parametrize("trace", [[1.5], [True], ["12"], "12", 12, [[1]]])
def test_a_trace_of_anything_but_whole_numbers_is_the_wrong_type(trace: list[int]) -> None:
    with pytest.raises(WrongTypeError, match="size"):
        best_sizes(trace, 4)


@pytest.mark.parametrize("max_graphs", [0, -3])
def test_max_graphs_below_one_is_refused(max_graphs: int) -> None:
    with pytest.raises(UsageError, match=f"at least 1, got {max_graphs}"):
        best_sizes([1], max_graphs)


@pytest.mark.parametrize("max_graphs", [True, 2.0, "2"])
def test_max_graphs_must_be_a_whole_number(max_graphs: int) -> None:
    with pytest.raises(WrongTypeError):
        best_sizes([1], max_graphs)


def test_padded_share_is_padding_over_all_computed_rows() -> None:
    assert padded_share((4, 8), [4, 3, 5]) == (0 + 1 + 3) / (4 + 4 + 8)


def test_padded_share_counts_calls_that_fit_no_bucket_at_their_own_size() -> None:
    assert padded_share((4,), [3, 12]) == 1 / (4 + 12)


def test_padded_share_of_no_calls_is_zero() -> None:
    assert padded_share((4,), [0]) == 0.0


@pytest.mark.skipif(not TRACE.exists(), reason="the traces are not beside this checkout")
def test_a_day_of_real_prompts_is_learnt_in_one_sweep_a_bucket_and_beats_doubling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TRACE.open() as rows:
        lengths = [int(row["ContextTokens"]) for row in csv.DictReader(rows)]
    compared = 0

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any) -> Any:
            nonlocal compared
            compared += 1
            return step(*given)

        return counting

    for name in ("_height", "_middle_never_lowest"):
        monkeypatch.setattr(learning, name, counted(getattr(learning, name)))
    sizes = best_sizes(lengths, 32)
    # So many to each size and bucket, and not to each pair of sizes, which would be hundreds.
    assert compared < 10 * 32 * len(set(lengths))
    assert len(sizes) == 32
    doubling = [2**n for n in range(20)]
    assert padded_share(sizes, lengths) < 0.03 < padded_share(doubling, lengths)
