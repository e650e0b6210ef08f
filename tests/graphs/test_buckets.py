"""Buckets: a call runs on the smallest recording that holds it."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError

import pytest

from ostinato.errors import UsageError, WrongTypeError
from ostinato.graphs.buckets import Buckets


@pytest.mark.parametrize(("size", "bucket"), [(1, 1), (3, 4), (4, 4), (8, 8)])
def test_fit_picks_the_smallest_bucket_that_holds_the_call(size: int, bucket: int) -> None:
    assert Buckets(0, (1, 2, 4, 8)).fit(size) == bucket


def test_fit_returns_none_when_the_call_is_larger_than_every_bucket() -> None:
    assert Buckets(0, (1, 2, 4)).fit(5) is None


@pytest.mark.parametrize("size", [0, -2])
def test_fit_rejects_an_empty_batch(size: int) -> None:
    with pytest.raises(UsageError, match=f"at least 1 row, got {size}") as caught:
        Buckets(0, (1,)).fit(size)
    assert caught.value.code == "OST1003"


@pytest.mark.parametrize("size", [None, "4", 1.5, True])
def test_fit_takes_whole_numbers_only(size: object) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Buckets(0, (1,)).fit(size)  # type: ignore[arg-type]
    assert caught.value.code == "OST1003"


@pytest.mark.parametrize("sizes", [(), (0, 1), (-1, 1), (4, 2), (2, 2)])
def test_sizes_must_be_positive_and_ascending(sizes: tuple[int, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        Buckets(0, sizes)
    assert caught.value.code == "OST1002"
    assert str(sizes) in str(caught.value)


@pytest.mark.parametrize("sizes", [(True, 2), (1.0, 2.0), ("1", "2"), "12", 4, None, {1: 2}])
def test_sizes_must_be_whole_numbers(sizes: object) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Buckets(0, sizes)  # type: ignore[arg-type]
    assert caught.value.code == "OST1002"
    assert repr(sizes) in str(caught.value)


def test_sizes_of_any_sequence_are_kept_as_a_tuple_of_plain_ints() -> None:
    numpy = pytest.importorskip("numpy")
    for sizes in ([1, 2, 3], range(1, 4), numpy.array([1, 2, 3])):
        kept = Buckets(0, sizes).sizes
        assert kept == (1, 2, 3)
        assert type(kept) is tuple
        assert all(type(size) is int for size in kept)


@pytest.mark.parametrize("dim", [True, 1.0, "1", None])
def test_dim_must_be_a_whole_number(dim: object) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Buckets(dim, (1,))  # type: ignore[arg-type]
    assert caught.value.code == "OST1005"


@pytest.mark.parametrize(("dim", "resolved"), [(0, 0), (2, 2), (-1, 2), (-3, 0)])
def test_dim_counts_from_either_end_of_the_tensor(dim: int, resolved: int) -> None:
    assert Buckets(dim, (1,)).dim_of(3) == resolved


@pytest.mark.parametrize(("dim", "ndim"), [(2, 2), (-3, 2), (0, 0)])
def test_a_dim_that_the_tensor_lacks_is_refused_by_name(dim: int, ndim: int) -> None:
    with pytest.raises(UsageError, match=f"'batch.mask' are on dim {dim}.*{ndim} dim") as caught:
        Buckets(dim, (1,)).dim_of(ndim, "batch.mask")
    assert caught.value.code == "OST1005"


@pytest.mark.parametrize("fill", [0, -1, 0.5, True, float("-inf"), "zero", "repeat-last", "keep"])
def test_numbers_and_policies_are_fills(fill: float) -> None:
    assert Buckets(0, (1,), fill).fill is fill


def test_a_number_of_numpy_s_is_kept_as_python_s() -> None:
    numpy = pytest.importorskip("numpy")
    for given, kept in ((numpy.float32(0.5), 0.5), (numpy.int64(3), 3)):
        fill = Buckets(0, (1,), given).fill
        assert (type(fill), fill) == (type(kept), kept)


@pytest.mark.parametrize("fill", ["repeat", "", float("nan")])
def test_an_unknown_policy_or_nan_is_refused(fill: float) -> None:
    with pytest.raises(UsageError) as caught:
        Buckets(0, (1,), fill)
    assert caught.value.code == "OST1004"
    assert "repeat-last" in caught.value.remedy


@pytest.mark.parametrize("fill", [None, [0], 1j])
def test_a_fill_that_is_no_number_has_the_wrong_type(fill: object) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Buckets(0, (1,), fill)  # type: ignore[arg-type]
    assert caught.value.code == "OST1004"


@pytest.mark.parametrize("cut", [{0: 1}, {"logits": "1"}, {"logits": True}, [("logits", 1)], "x"])
def test_cut_must_map_paths_to_dimensions(cut: object) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Buckets(0, (1,), cut=cut)  # type: ignore[arg-type]
    assert caught.value.code == "OST1006"


def test_cut_is_a_read_only_copy() -> None:
    declared = {"logits": 1}
    buckets = Buckets(0, (1,), cut=declared)
    declared["logits"] = 2
    assert buckets.cut == {"logits": 1}
    with pytest.raises(TypeError):
        buckets.cut["logits"] = 3  # type: ignore[index]


def test_to_cut_nothing_is_not_the_same_as_to_find_out() -> None:
    assert Buckets(0, (1,), cut={}).cut == {}
    assert Buckets(0, (1,)).cut is None


def test_buckets_never_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Buckets(0, (1,)).dim = 1  # type: ignore[misc]


def test_equal_buckets_are_equal_keys_also_after_pickle_and_copy() -> None:
    buckets = Buckets(1, (4, 8), -1, {"logits": 1})
    for twin in (
        Buckets(1, [4, 8], -1, {"logits": 1}),
        pickle.loads(pickle.dumps(buckets)),
        copy.deepcopy(buckets),
    ):
        assert twin == buckets
        assert hash(twin) == hash(buckets)
    assert buckets != Buckets(1, (4, 8), -1, {"logits": 2})
    assert buckets != Buckets(1, (4, 8), -1)


def test_repr_is_the_call_that_makes_it() -> None:
    for buckets in (Buckets(-1, (1, 2), "keep"), Buckets(1, (4,), 0.5, {"a.b": 1})):
        assert eval(repr(buckets)) == buckets


def test_repr_of_many_sizes_stays_short() -> None:
    assert repr(Buckets(0, range(1, 501))) == (
        "Buckets(dim=0, sizes=(1, 2, 3, 4, ..., 500: 500 sizes), fill=0)"
    )


def test_buckets_survive_a_trip_through_json() -> None:
    for buckets in (
        Buckets(1, (4, 8), "repeat-last", {"": 0}),
        Buckets(0, (1,), float("-inf")),
        Buckets.learn([3, 9, 9, 20], 2, dim=-1, fill=True),
    ):
        assert Buckets.from_dict(json.loads(json.dumps(buckets.to_dict()))) == buckets


@pytest.mark.parametrize("saved", [{}, {"dim": 1}, {"dim": 0, "sizes": [1], "size": [2]}])
def test_saved_buckets_with_missing_or_unknown_entries_are_refused(
    saved: dict[str, object],
) -> None:
    with pytest.raises(UsageError, match="entries dim, sizes, fill and cut"):
        Buckets.from_dict(saved)


@pytest.mark.parametrize("saved", [None, [("dim", 0)], {"dim": 0, 3: 4}])
def test_what_was_never_saved_is_refused_in_the_same_words(saved: object) -> None:
    with pytest.raises(UsageError, match="entries dim, sizes, fill and cut"):
        Buckets.from_dict(saved)  # type: ignore[arg-type]


def test_saved_buckets_are_checked_like_new_ones() -> None:
    with pytest.raises(UsageError, match="ascending"):
        Buckets.from_dict({"dim": 0, "sizes": [4, 2]})


def test_powers_of_two_double_up_to_the_largest() -> None:
    assert Buckets.powers_of_two(100, dim=1, smallest=16).sizes == (16, 32, 64, 100)
    assert Buckets.powers_of_two(8, dim=0, fill=-1) == Buckets(0, (1, 2, 4, 8), -1)
    assert Buckets.powers_of_two(1, dim=0).sizes == (1,)


@pytest.mark.parametrize(("largest", "smallest"), [(8, 16), (0, 1), (8, 0), (8, -1)])
def test_powers_of_two_need_a_positive_smallest_below_the_largest(
    largest: int, smallest: int
) -> None:
    with pytest.raises(UsageError, match="positive and strictly ascending"):
        Buckets.powers_of_two(largest, dim=0, smallest=smallest)


@pytest.mark.parametrize("largest", [None, "8", 8.0])
def test_powers_of_two_need_a_whole_number(largest: object) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Buckets.powers_of_two(largest, dim=0)  # type: ignore[arg-type]
    assert caught.value.code == "OST1002"


def test_learnt_sizes_pad_less_than_doubling_on_the_traffic_they_were_learnt_from() -> None:
    trace = [90] * 50 + [130] * 50 + [7]
    learnt = Buckets.learn(trace, 2, dim=1, fill="keep")
    assert learnt == Buckets(1, (90, 130), "keep")
    assert learnt.padded_share(trace) < Buckets.powers_of_two(256, dim=1).padded_share(trace)
