"""Trees: apart into leaves and together again, with the same types."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.graphs.tree import Structure, flatten, reopen

Pair = namedtuple("Pair", ["a", "b"])  # noqa: PYI024


@dataclass
class Node:
    left: Any
    right: Any = None


@dataclass(frozen=True, slots=True)
class Sealed:
    value: Any
    more: tuple[Any, ...] = ()


@dataclass
class Made:
    value: Any
    double: Any = field(init=False)

    def __post_init__(self) -> None:
        self.double = [self.value, self.value]
        self.extra = {"v": self.value}
        Made.built += 1


Made.built = 0  # type: ignore[attr-defined]

leaves_ = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3),
    st.floats(allow_nan=False), st.builds(torch.Size, st.lists(st.integers(0, 9), max_size=3)),
)  # fmt: skip
keys = st.one_of(st.text(max_size=3), st.integers())
trees = st.recursive(
    leaves_,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.dictionaries(keys, inner, max_size=3).map(lambda d: defaultdict(list, d)),
        st.builds(Pair, inner, inner),
        st.builds(Node, inner, inner),
        st.builds(Sealed, inner, st.tuples(inner)),
        st.lists(inner, max_size=3).map(deque),
    ),
    max_leaves=12,
)


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value), {k: types_of(v) for k, v in value.items()}
    if isinstance(value, list | tuple | deque):
        return type(value), [types_of(v) for v in value]
    if isinstance(value, Node):
        return Node, types_of(value.left), types_of(value.right)
    return type(value)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_a_value_comes_back_equal_with_equal_types(value: Any) -> None:
    leaves, structure = flatten(value)
    again = structure.unflatten(leaves)
    assert again == value
    assert types_of(again) == types_of(value)
    assert len(structure.paths) == len(leaves)
    assert flatten(again)[1] == structure
    assert hash(flatten(again)[1]) == hash(structure)


@settings(max_examples=150, deadline=None)
@given(trees, trees)
def test_reopening_agrees_with_flattening_or_says_that_it_is_not_sure(a: Any, b: Any) -> None:
    _, structure = flatten(a)
    wanted, other = flatten(b)
    leaves: list[object] = []
    if reopen(b, structure, leaves, []):
        assert other == structure
        assert [id(leaf) for leaf in leaves] == [id(leaf) for leaf in wanted]


def test_reopening_is_sure_of_dicts_lists_and_tuples_of_tensors() -> None:
    def make() -> Any:
        return {"a": torch.ones(1), "b": [torch.ones(1), (None, 1)]}

    leaves: list[object] = []
    value = make()
    assert reopen(value, flatten(make())[1], leaves, [])
    assert leaves[0] is value["a"]
    assert leaves[2:] == [None, 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], (1,)), ({"a": 1}, {"b": 1}), ({"a": 1}, OrderedDict(a=1)), ([1], [1, 2]),
        ([1, [2]], [[1], 2]), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (Pair(1, 2), (1, 2)),
        (Node(1), Node([1])), (defaultdict(int, a=1), defaultdict(list, a=1)), ({1: 0}, {"1": 0}),
    ],
    ids=repr,
)  # fmt: skip
def test_values_that_are_nested_differently_have_different_structures(one: Any, other: Any) -> None:
    assert flatten(one)[1] != flatten(other)[1]


def test_paths_say_where_a_leaf_is() -> None:
    value = {"ids": 1, "batch": Node([2, 3], Pair(4, {7: 5}))}
    assert flatten(value)[1].paths == (
        "ids", "batch.left.0", "batch.left.1", "batch.right.a", "batch.right.b.7",
    )  # fmt: skip
    assert flatten(3)[1].paths == ("",)


def test_rebuilding_a_dataclass_neither_runs_its_constructor_nor_loses_what_it_set() -> None:
    made = Made(1)
    before = Made.built  # type: ignore[attr-defined]
    leaves, structure = flatten(made)
    again = structure.unflatten([leaf * 10 for leaf in leaves])  # type: ignore[operator]
    assert Made.built == before  # type: ignore[attr-defined]
    assert (again.value, again.double, again.extra) == (10, [10, 10], {"v": 10})


def test_a_slot_that_was_never_filled_stays_empty() -> None:
    sealed = object.__new__(Sealed)
    object.__setattr__(sealed, "value", 1)
    leaves, structure = flatten(sealed)
    assert leaves == [1]
    assert not hasattr(structure.unflatten([2]), "more")


def test_a_model_output_comes_back_as_its_constructor_makes_it() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    value = outputs.BaseModelOutputWithPast(
        last_hidden_state=torch.ones(1), hidden_states=(torch.ones(2), torch.ones(3))
    )
    leaves, structure = flatten(value)
    again = structure.unflatten(leaves)
    assert type(again) is type(value)
    assert list(again.items()) == list(value.items())
    assert again.__dict__ == value.__dict__
    assert again.to_tuple() == value.to_tuple()
    assert again.past_key_values is None
    again["past_key_values"] = 3
    assert again.past_key_values == 3
    assert structure.paths == ("last_hidden_state", "hidden_states.0", "hidden_states.1")


@pytest.mark.parametrize("count", [1, 3])
def test_the_wrong_number_of_leaves_is_an_error(count: int) -> None:
    structure: Structure = flatten([1, 2])[1]
    with pytest.raises((ValueError, StopIteration)):
        structure.unflatten([0] * count)


def test_a_value_that_contains_itself_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        flatten(loop)
