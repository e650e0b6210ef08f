"""Handing out: owned copies that keep their layout and what they share, without their gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.errors import CaptureError
from ostinato.graphs.extents import Extent
from ostinato.graphs.lease import Lease
from ostinato.graphs.outputs import HandOut, lease_all
from ostinato.graphs.tree import flatten


def copied(result: Any) -> Any:
    leaves, structure = flatten(result)
    return structure.unflatten(leaves)


def hand_out(result: Any, *, statics: Any = (), own: Any = (), **options: Any) -> HandOut:
    return HandOut(
        result,
        statics,
        range(len(statics)),
        own,
        options.get("extents"),
        options.get("padded", frozenset()),
        options.get("observed", copied(result)),
        options.get("objects", ()),
    )


@st.composite
def outputs(draw: st.DrawFn) -> list[Tensor]:
    base = torch.arange(96, dtype=torch.float32)
    made = []
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.lists(st.integers(1, 4), max_size=3))
        strides = [draw(st.integers(0, 8)) for _ in shape]
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        memory = base if draw(st.booleans()) else base.clone()
        made.append(memory.as_strided(shape, strides, draw(st.integers(0, 95 - reach))))
    return made


@settings(max_examples=200, deadline=None)
@given(outputs())
def test_copies_are_equal_and_nobody_elses(result: list[Tensor]) -> None:
    copies = hand_out(result).own((), ())
    before = [tensor.clone() for tensor in result]
    assert isinstance(copies, list)
    for copy, tensor in zip(copies, result, strict=True):
        assert (copy.shape, copy.dtype) == (tensor.shape, tensor.dtype)
    for tensor in result:
        tensor.untyped_storage().fill_(0)
    for copy, kept in zip(copies, before, strict=True):
        assert torch.equal(copy, kept)


@settings(max_examples=200, deadline=None)
@given(outputs())
def test_copies_take_no_more_than_twice_the_memory(result: list[Tensor]) -> None:
    copies = hand_out(result).own((), ())
    taken = {c.untyped_storage()._cdata: c.untyped_storage().nbytes() for c in copies}  # type: ignore[attr-defined]
    assert sum(taken.values()) <= 2 * sum(tensor.nbytes for tensor in result)


def test_outputs_that_share_memory_share_it_in_the_copies() -> None:
    base = torch.arange(6.0)
    whole, part, again = hand_out((base, base[2:], base)).own((), ())  # type: ignore[misc]
    assert again is whole
    whole[3] = 9
    assert part[1] == 9
    assert base[3] == 3


def test_a_cut_output_is_dense() -> None:
    static = torch.arange(32.0).view(8, 4)
    extents = [(Extent(0, (1,)), Extent(4, (0,)))]
    handing = hand_out(static, extents=extents)
    for rows in (3, 8, 3):
        copy = handing.own((), (rows,))
        assert isinstance(copy, Tensor)
        assert torch.equal(copy, static[:rows])
        assert copy.is_contiguous()


def test_an_output_cut_along_its_last_dimension_is_dense_too() -> None:
    static = torch.arange(32.0).view(4, 8)
    copy = hand_out(static, extents=[(Extent(4, (0,)), Extent(0, (1,)))]).own((), (6,))
    assert isinstance(copy, Tensor)
    assert torch.equal(copy, static[:, :6])
    assert copy.stride() == (6, 1)


def test_a_view_that_does_not_fit_the_callers_address_is_an_error_not_a_wrong_view() -> None:
    static = torch.zeros(16, dtype=torch.uint8)
    handing = hand_out(static.view(torch.float32), statics=[static])
    aligned = torch.zeros(20, dtype=torch.uint8)
    assert handing.own([aligned[4:]], ()).data_ptr() == aligned.data_ptr() + 4  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="cannot have"):
        handing.own([aligned[1:17]], ())


def test_a_tensor_with_an_attribute_is_refused_unless_it_is_the_callables_own() -> None:
    marked = torch.ones(2)
    marked.mark = 1  # type: ignore[attr-defined]
    with pytest.raises(CaptureError, match="attribute 'mark'") as caught:
        hand_out((torch.ones(1), marked))
    assert caught.value.reason == "unsupported-output"
    assert hand_out(marked, own=[marked]).own((), ()) is marked


def test_what_the_compiler_notes_on_a_result_is_no_attribute_of_it() -> None:
    seen = torch.ones(2)
    seen._dynamo_weak_dynamic_indices = {0}  # type: ignore[attr-defined]
    given = hand_out(seen).own((), ())
    assert torch.equal(given, torch.ones(2))  # type: ignore[arg-type]
    assert not vars(given)
    seen.mark = 1  # type: ignore[attr-defined]
    with pytest.raises(CaptureError, match="attribute 'mark'"):
        hand_out(seen)


class Thing:
    pass


@dataclass
class Kept:
    value: int


THING = Thing()


@pytest.mark.parametrize(
    ("result", "observed", "reason"),
    [
        (Thing(), Thing(), "unsupported-output"),
        ([1.0], [2.0], "python-side-effect"),
        ([True], [1], "python-side-effect"),
        (torch.eye(2).to_sparse(), None, "unsupported-output"),
    ],
)
def test_what_cannot_be_handed_out_again_is_refused(
    result: Any, observed: Any, reason: str
) -> None:
    with pytest.raises(CaptureError) as caught:
        hand_out(result, observed=observed)
    assert caught.value.reason == reason


def test_an_object_that_is_the_same_each_time_or_was_given_is_handed_out() -> None:
    assert hand_out([THING]).own((), ()) == [THING]
    assert hand_out([THING], observed=[None], objects=[THING]).own((), ()) == [THING]


@pytest.mark.parametrize(
    ("held", "path", "kind"),
    [
        ([1], "the result", "list"),
        ({"a": {}}, "the result", "dict"),
        ((torch.ones(1), [None]), "1", "list"),
        (Kept(2), "the result", "Kept"),
    ],
)
def test_a_container_of_the_callables_own_is_refused(held: Any, path: str, kind: str) -> None:
    with pytest.raises(CaptureError, match=rf"^OST1101: {path} is a {kind} that the") as caught:
        hand_out(held, observed=held)
    assert caught.value.reason == "unsupported-output"


def test_a_parameter_that_each_run_makes_is_refused_and_one_that_is_held_is_not() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(CaptureError, match="Parameter that each run makes") as caught:
        hand_out([parameter])
    assert caught.value.reason == "unsupported-output"
    assert hand_out(parameter, own=[parameter]).own((), ()) is parameter


_COMPLEX = torch.complex(torch.arange(24.0), torch.ones(24))


@pytest.mark.parametrize(
    "result",
    [
        _COMPLEX.conj(),
        _COMPLEX.conj().imag,
        _COMPLEX.conj()[::2],
        _COMPLEX.conj()[::20],
        _COMPLEX.view(4, 6).t().conj(),
        (_COMPLEX.conj(), _COMPLEX.conj()[2:]),
    ],
)
def test_a_copy_conjugates_and_negates_on_reading_as_its_original(result: Any) -> None:
    for copy, tensor in zip(
        flatten(hand_out(result).own((), ()))[0], flatten(result)[0], strict=True
    ):
        assert (copy.is_conj(), copy.is_neg()) == (tensor.is_conj(), tensor.is_neg())
        assert torch.equal(copy, tensor)


def test_a_tuple_of_the_callables_own_is_as_good_as_its_copy() -> None:
    held = (1, ("two", None))
    assert hand_out(held, observed=held).own((), ()) == held


def test_eager_results_are_leased_with_their_structure() -> None:
    leased = lease_all({"a": torch.ones(1), "b": [None, 2]})
    assert isinstance(leased, dict)
    assert isinstance(leased["a"], Lease)
    assert leased["b"] == [None, 2]
    assert not leased["a"].is_stale
