"""Padding: every call writes the whole static input, real part and tail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.errors import InternalError, UsageError
from ostinato.graphs.buckets import Fill
from ostinato.graphs.padding import check_fill, cut, pad_into, poison

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SMALL_FLOATS = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
INTS = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
COMPLEX = [torch.complex64, torch.complex128]
EVERY_TYPE = [torch.bool, *INTS, *FLOATS, *SMALL_FLOATS, *COMPLEX]


class Calls(TorchDispatchMode):
    """Counts the kernels that a block launches; views launch none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        aliases = [returned.alias_info for returned in func._schema.returns]
        if not any(alias and not alias.is_write for alias in aliases):
            self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def numbers(dtype: torch.dtype, *shape: int) -> Tensor:
    """Values that every type holds exactly and that differ from 0 and from each other's rows."""
    powers = 2.0 ** (torch.arange(torch.Size(shape).numel()) % 5).reshape(shape)
    return powers.to(dtype)


def same(left: Tensor, right: Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(_readable(left), _readable(right))


def _readable(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128)


@pytest.mark.parametrize("dtype", EVERY_TYPE, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_the_front_is_the_given_tensor_and_the_tail_the_fill(dtype: torch.dtype, dim: int) -> None:
    static = numbers(dtype, 6, 6)
    given = numbers(dtype, 6, 6).flip(0).narrow(dim, 0, 4)
    pad_into(static, given, dim, 1, None)
    assert same(static.narrow(dim, 0, 4), given)
    assert same(static.narrow(dim, 4, 2), torch.ones(6, 6).narrow(dim, 4, 2).to(dtype))


@pytest.mark.parametrize("dtype", [t for t in EVERY_TYPE if t != torch.float8_e8m0fnu], ids=str)
def test_zero_clears_the_tail(dtype: torch.dtype) -> None:
    static = numbers(dtype, 5, 3)
    pad_into(static, numbers(dtype, 2, 3), 0, "zero", None)
    assert same(static[2:], torch.zeros(3, 3).to(dtype))


@pytest.mark.parametrize("dtype", EVERY_TYPE, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_repeat_last_repeats_the_last_real_slice(dtype: torch.dtype, dim: int) -> None:
    static = torch.zeros(6, 6).to(dtype)
    given = numbers(dtype, 6, 6).narrow(dim, 0, 4)
    pad_into(static, given, dim, "repeat-last", None)
    for index in (4, 5):
        assert same(static.select(dim, index), given.select(dim, 3))


@pytest.mark.parametrize("dtype", EVERY_TYPE, ids=str)
def test_keep_leaves_the_tail_as_it_was(dtype: torch.dtype) -> None:
    static = numbers(dtype, 5, 3)
    before = static.clone()
    pad_into(static, torch.ones(2, 3).to(dtype), 0, "keep", None)
    assert same(static[2:], before[2:])
    assert same(static[:2], torch.ones(2, 3).to(dtype))


@pytest.mark.parametrize("fill", [0, 7, "zero", "repeat-last", "keep"])
def test_a_full_bucket_has_no_tail_to_fill(fill: int) -> None:
    static, given = torch.zeros(3, 2), torch.ones(3, 2)
    with Calls() as calls:
        pad_into(static, given, 0, fill, None)
    assert calls.names == ["copy_"]
    assert torch.equal(static, torch.ones(3, 2))


@pytest.mark.parametrize("fill", [0, 7, "zero", "repeat-last"])
def test_a_call_costs_one_copy_and_one_fill(fill: int) -> None:
    static, given = torch.zeros(8, 2), torch.ones(3, 2)
    with Calls() as calls:
        pad_into(static, given, 0, fill, None)
    assert len(calls.names) == 2


@pytest.mark.parametrize("shape", [(4, 3), (4, 1)])
def test_expanded_and_transposed_tensors_are_copied_as_they_read(shape: tuple[int, int]) -> None:
    static = torch.full((6, 3), 9.0)
    expanded = (
        numbers(torch.float32, *shape).expand(4, 3)
        if shape[1] == 1
        else (numbers(torch.float32, 3, 4).t())
    )
    assert not expanded.is_contiguous()
    pad_into(static, expanded, 0, "repeat-last", None)
    assert torch.equal(static[:4], expanded)
    assert torch.equal(static[4:], expanded[3].expand(2, 3))


def test_a_static_input_may_have_any_layout() -> None:
    static = torch.full((3, 6), 9.0).t()
    pad_into(static, numbers(torch.float32, 4, 3), 0, 5, None)
    assert torch.equal(static[:4], numbers(torch.float32, 4, 3))
    assert torch.equal(static[4:], torch.full((2, 3), 5.0))


def test_conjugate_and_negative_views_are_copied_by_value() -> None:
    given = torch.tensor([1 + 2j, 3 - 1j]).conj()
    static = torch.zeros(3, dtype=torch.complex64)
    pad_into(static, given, 0, 0, None)
    assert static.tolist() == [1 - 2j, 3 + 1j, 0]
    real = torch.zeros(3)
    pad_into(real, given.imag, 0, 0, None)
    assert real.tolist() == [-2, 1, 0]


def test_rows_of_an_earlier_larger_call_are_gone() -> None:
    static = torch.zeros(8)
    pad_into(static, torch.full((7,), 3.0), 0, -1, None)
    pad_into(static, torch.full((2,), 4.0), 0, -1, 7)
    assert static.tolist() == [4, 4, -1, -1, -1, -1, -1, -1]


def test_a_tail_that_holds_the_fill_already_is_not_filled_again() -> None:
    static, given = torch.tensor([0.0, 0, 0, 5, 5, 5]), torch.ones(4)
    with Calls() as calls:
        pad_into(static, given, 0, 5, 3)
    assert calls.names == ["copy_"]
    assert static.tolist() == [1, 1, 1, 1, 5, 5]
    pad_into(static, torch.ones(1), 0, 5, 4)
    assert static.tolist() == [1, 5, 5, 5, 5, 5]


def test_repeat_last_never_trusts_an_old_tail() -> None:
    static = torch.tensor([1.0, 1, 1, 1])
    pad_into(static, torch.tensor([2.0, 3.0]), 0, "repeat-last", 2)
    assert static.tolist() == [2, 3, 3, 3]


def test_repeat_last_of_nothing_is_a_bug_of_ours() -> None:
    with pytest.raises(InternalError, match="no last row") as caught:
        pad_into(torch.zeros(4), torch.zeros(0), 0, "repeat-last", None)
    assert caught.value.code == "OST1903"


def test_an_empty_tensor_may_be_padded_with_a_constant() -> None:
    static = torch.zeros(4)
    pad_into(static, torch.zeros(0), 0, 3, None)
    assert static.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        (torch.uint8, -1),
        (torch.uint8, 256),
        (torch.int8, 200),
        (torch.int32, 2**31),
        (torch.int64, 2**63),
        (torch.uint64, -1),
        (torch.int64, 0.5),
        (torch.int64, float("-inf")),
        (torch.bool, 2),
        (torch.bool, 0.5),
        (torch.float16, 1e5),
        (torch.float32, 1e39),
        (torch.float8_e4m3fn, 500),
        (torch.float8_e4m3fn, float("inf")),
        (torch.float8_e4m3fnuz, float("-inf")),
        (torch.float8_e8m0fnu, 0),
        (torch.float8_e8m0fnu, "zero"),
        (torch.float8_e8m0fnu, -1),
        (torch.complex64, 1e39),
        (torch.float4_e2m1fn_x2, 1),
    ],
    ids=str,
)
def test_a_number_that_the_type_cannot_hold_is_refused_by_name(
    dtype: torch.dtype, fill: Fill
) -> None:
    with pytest.raises(UsageError) as caught:
        check_fill(dtype, fill, "batch.ids")
    assert caught.value.code == "OST1004"
    assert "'batch.ids'" in str(caught.value)
    assert str(dtype) in str(caught.value)
    assert repr(fill) in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        (torch.uint8, 255),
        (torch.int8, -128),
        (torch.int64, 2.0),
        (torch.int64, True),
        (torch.uint64, 2**64 - 1),
        (torch.bool, False),
        (torch.bool, 1.0),
        (torch.float16, 65504),
        (torch.float16, 0.1),
        (torch.float32, float("-inf")),
        (torch.float8_e5m2, float("inf")),
        (torch.float8_e4m3fn, 448),
        (torch.float8_e8m0fnu, 1),
        (torch.complex64, float("inf")),
        (torch.float4_e2m1fn_x2, 0),
        (torch.uint8, "keep"),
        (torch.float8_e8m0fnu, "repeat-last"),
    ],
    ids=str,
)
def test_a_number_that_fits_is_taken_and_written_as_it_is(dtype: torch.dtype, fill: Fill) -> None:
    check_fill(dtype, fill, "x")
    if dtype == torch.float4_e2m1fn_x2 or isinstance(fill, str):
        return
    static = numbers(dtype, 3)
    pad_into(static, numbers(dtype, 1), 0, fill, None)
    if dtype == torch.uint64:  # no wider type to compare in
        assert static[2].item() == fill
    else:
        assert same(static[1:], torch.tensor([fill, fill]).to(dtype))


@pytest.mark.parametrize("dtype", EVERY_TYPE, ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_poison_is_finite_garbage_in_the_tail_alone(dtype: torch.dtype, dim: int) -> None:
    static = numbers(dtype, 41, 41)
    before = static.clone()
    poison(static, dim, 20)
    assert same(static.narrow(dim, 0, 20), before.narrow(dim, 0, 20))
    assert not same(static, before)
    assert torch.isfinite(_readable(static)).all()


@pytest.mark.parametrize("dtype", [*FLOATS, *SMALL_FLOATS, *COMPLEX], ids=str)
def test_poison_is_loud_but_its_square_is_finite(dtype: torch.dtype) -> None:
    static = torch.zeros(100).to(dtype)
    poison(static, 0, 0)
    sizes = _readable(static).abs()
    assert sizes.min() > 3
    assert (sizes**2).max() < torch.finfo(dtype).max


def test_poisoned_indices_stay_valid_indices() -> None:
    static = torch.tensor([3, 5, 3, 0, 0, 0, 0, 0, 0, 0])
    poison(static, 0, 3)
    assert set(static[3:].tolist()) == {3, 5}


def test_poison_without_a_real_part_or_a_tail_is_harmless() -> None:
    whole = torch.tensor([3, 5])
    poison(whole, 0, 2)
    assert whole.tolist() == [3, 5]
    poison(whole, 0, 0)
    assert whole.tolist() == [0, 0]


def test_poison_depends_on_its_seed_and_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = torch.zeros(3, 8).unbind()
    poison(first, 0, 0)
    poison(again, 0, 0)
    poison(other, 0, 0, seed=1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_cut_narrows_the_named_dimensions_as_a_view() -> None:
    output = torch.arange(24).reshape(2, 3, 4)
    front = cut(output, {1: 2, -1: 3})
    assert torch.equal(front, output[:, :2, :3])
    assert front.data_ptr() == output.data_ptr()


def test_cut_to_the_full_size_is_the_tensor_itself() -> None:
    output = torch.arange(6).reshape(2, 3)
    assert cut(output, {0: 2, 1: 3}) is output


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", EVERY_TYPE, ids=str)
def test_padding_on_a_gpu_equals_padding_on_a_cpu(dtype: torch.dtype) -> None:
    for fill in (1, "repeat-last", "keep"):
        here, there = numbers(dtype, 6, 5), numbers(dtype, 6, 5).cuda()
        given = numbers(dtype, 5, 4).t()
        pad_into(here, given, 0, fill, None)
        pad_into(there, given.cuda(), 0, fill, None)
        assert same(there.cpu(), here)
    poison(there, 0, 3)
    assert torch.isfinite(_readable(there.cpu())).all()
