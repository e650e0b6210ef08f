"""Signing: a call's values as a key, and which tensors share memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.graphs.signature import ObjectSpec, TensorSpec, UnfitSpec, ValueSpec
from ostinato.graphs.signing import (
    Opening,
    close_call,
    leaf_spec,
    overlaps,
    span_bytes,
    value_spec,
)


def test_a_call_is_put_together_as_it_was() -> None:
    opening = Opening(("x", "y"), sees_order=True)
    args, kwargs = (1, [2, {"a": 3}], 4), {"k": (5,), "n": None}
    leaves, structure = opening.open(args, kwargs)
    assert close_call(structure, leaves) == (args, kwargs)
    assert structure.paths == ("x", "y.0", "y.1.a", "2", "k.0", "n")


def test_calls_that_are_nested_alike_share_their_structure_object() -> None:
    opening = Opening(("x",), sees_order=True)
    for make in (lambda: (1,), lambda: ({"a": [torch.ones(1)]},)):
        assert opening.open(make(), {})[1] is opening.open(make(), {})[1]
    assert opening.open((1, 2), {})[1] != opening.open((1,), {"y": 2})[1]


def test_keyword_order_counts_only_where_it_can_be_seen() -> None:
    for sees_order in (True, False):
        opening = Opening((), sees_order=sees_order)
        one, two = opening.open((), {"a": 1, "b": 2}), opening.open((), {"b": 2, "a": 1})
        assert (one == two) is not sees_order


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, ValueSpec), (np.float64(1), ValueSpec), (slice(1), ValueSpec),
        (frozenset({1}), ValueSpec), (slice(object()), ObjectSpec), (print, ObjectSpec),
        (frozenset({print}), ObjectSpec), (torch.float32, ValueSpec), (int, ValueSpec),
        (np.ones(1), UnfitSpec), (np.random.default_rng(0), UnfitSpec), (iter([1]), UnfitSpec),
        (__import__("random").Random(0), UnfitSpec), ((i for i in ()), UnfitSpec),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_values_are_keyed_by_value_objects_by_identity_and_the_rest_is_unfit(
    value: Any, kind: type
) -> None:
    assert type(value_spec(value)) is kind


floats = st.floats(allow_nan=True, allow_subnormal=True)


@given(floats, floats)
def test_two_floats_match_when_their_bits_do(a: float, b: float) -> None:
    same = np.float64(a).tobytes() == np.float64(b).tobytes()
    assert (value_spec(a) == value_spec(b)) is same
    assert value_spec(a) == value_spec(float(a))


def test_an_object_that_died_matches_nothing() -> None:
    class Thing:
        pass

    thing = Thing()
    spec = value_spec(thing)
    assert spec == value_spec(thing)
    assert spec != value_spec(Thing())
    del thing
    assert spec.value is None  # type: ignore[union-attr]
    assert spec != spec


def test_a_gradient_counts_only_while_gradients_are_on() -> None:
    x = torch.ones(1, requires_grad=True)
    assert leaf_spec(x, grad=True) != leaf_spec(x.detach(), grad=True)
    assert leaf_spec(x, grad=False) == leaf_spec(x.detach(), grad=False)
    assert str(leaf_spec(x, grad=False)) == "float32[1]@cpu"


# Shared memory, against the plain truth: the bytes that each tensor touches.


@st.composite
def layouts(draw: st.DrawFn) -> list[Tensor]:
    base = torch.arange(64, dtype=torch.float32)
    made = []
    for _ in range(draw(st.integers(1, 4))):
        dims = draw(st.lists(st.integers(1, 4), min_size=0, max_size=3))
        strides = [draw(st.integers(0, 5)) for _ in dims]
        reach = sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
        start = draw(st.integers(0, 63 - reach))
        made.append(base.as_strided(dims, strides, start))
    return made


def interval(tensor: Tensor) -> tuple[int, int]:
    addresses = [
        tensor.data_ptr() + 4 * sum(i * s for i, s in zip(index, tensor.stride(), strict=True))
        for index in np.ndindex(*tensor.shape)
    ]
    return min(addresses), max(addresses) + 4


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_overlaps_are_those_of_the_bytes_between_first_and_last_element(
    tensors: list[Tensor],
) -> None:
    for tensor in tensors:
        first, last = interval(tensor)
        assert span_bytes(tensor) == last - first
    groups = overlaps(tensors)
    seen = {index for group in groups for index in group[::2]}
    home = {index: number for number, group in enumerate(groups) for index in group[::2]}
    for i, a in enumerate(map(interval, tensors)):
        meets = [j for j, b in enumerate(map(interval, tensors)) if a[0] < b[1] and b[0] < a[1]]
        assert (i in seen) is (len(meets) > 1)
        assert len({home.get(j) for j in meets}) == 1
    for group in groups:
        starts = [tensors[i].data_ptr() for i in group[::2]]
        assert list(group[1::2]) == [start - min(starts) for start in starts]


def test_tensors_of_their_own_share_nothing() -> None:
    assert overlaps([torch.ones(3), 1, torch.ones(3), None]) == ()
    assert isinstance(leaf_spec(torch.ones(3), grad=True), TensorSpec)
