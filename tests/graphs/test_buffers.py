"""Static inputs: a call's tensors get in, and what a run wrote gets out, whatever their layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.graphs.buffers import Fit, StaticInputs, every_element_once, may_overlap_itself
from ostinato.graphs.signing import overlaps


def copy(statics: list[Tensor], given: list[Tensor]) -> None:
    for static, tensor in zip(statics, given, strict=True):
        static.copy_(tensor)


DTYPES = (torch.float32, torch.int64, torch.uint8, torch.float64)


@st.composite
def calls(draw: st.DrawFn) -> list[tuple[torch.dtype, list[int], list[int], int]]:
    """Views of one memory of 256 bytes: dtype, shape, strides, offset."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(DTYPES))
        room = 256 // dtype.itemsize
        shape = draw(st.lists(st.integers(1, 3), max_size=3))
        strides = [draw(st.integers(0, 5)) for _ in shape]
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        made.append((dtype, shape, strides, draw(st.integers(0, room - 1 - reach))))
    return made


def views(
    memory: Tensor, call: list[tuple[torch.dtype, list[int], list[int], int]]
) -> list[Tensor]:
    return [memory.view(dtype).as_strided(*layout) for dtype, *layout in call]


def fresh() -> Tensor:
    return torch.randint(0, 100, (256,), dtype=torch.uint8)


@settings(max_examples=200, deadline=None)
@given(calls(), st.data())
def test_views_of_one_memory_are_read_and_written_as_in_eager(
    call: list[tuple[torch.dtype, list[int], list[int], int]], data: st.DataObject
) -> None:
    recorded = views(fresh(), call)
    statics = StaticInputs(recorded, (), overlaps(recorded), copy)
    memory = fresh()
    given_now, twin = views(memory, call), memory.clone()
    eager = views(twin, call)
    statics.fill(given_now)
    for mine, theirs in zip(statics.tensors, eager, strict=True):
        assert (mine.shape, mine.stride(), mine.dtype) == (
            theirs.shape,
            theirs.stride(),
            theirs.dtype,
        )
        assert mine.view(-1).tolist() == theirs.view(-1).tolist() if mine.is_contiguous() else True
        assert torch.equal(mine.nan_to_num(), theirs.nan_to_num())
    # A run writes to one of them, through every element once.
    at = data.draw(st.integers(0, len(call) - 1))
    for tensors in (statics.tensors, eager):
        every_element_once(tensors[at]).fill_(7)
    for mine, theirs in zip(statics.tensors, eager, strict=True):
        assert torch.equal(mine.nan_to_num(), theirs.nan_to_num())
    statics.write_back(given_now, frozenset({at}))
    assert torch.equal(memory, twin)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=3))
def test_a_tensor_that_meets_itself_is_always_found(dims: list[tuple[int, int]]) -> None:
    shape, strides = [n for n, _ in dims], [s for _, s in dims]
    tensor = torch.empty_strided(shape, strides)
    offsets = [0]
    for n, s in dims:
        offsets = [o + i * s for o in offsets for i in range(n)]
    if len(set(offsets)) < len(offsets):
        assert may_overlap_itself(tensor)


@pytest.mark.parametrize(
    "view",
    [lambda t: t.t(), lambda t: t[:, 1:3], lambda t: t[::2], lambda t: t[1:, ::3], lambda t: t],
)
def test_slices_and_transposes_are_copied_by_element(view: object) -> None:
    assert not may_overlap_itself(view(torch.ones(6, 7)))  # type: ignore[operator]


def test_the_same_tensor_twice_is_one_static_tensor() -> None:
    x = torch.ones(4)
    statics = StaticInputs([x, 3, x, x[:]], (), overlaps([x, 3, x, x[:]]), copy)
    assert statics.leaves[0] is statics.leaves[2]
    assert statics.leaves[0] is not statics.leaves[3]
    assert statics.leaf_of == [0, 2, 3]


def test_views_of_unlike_alignment_share_memory() -> None:
    memory = torch.arange(64, dtype=torch.uint8)
    leaves = [memory[1:10], memory[4:20].view(torch.float32)]
    statics = StaticInputs(leaves, (), overlaps(leaves), copy)
    statics.fill(leaves)
    assert torch.equal(statics.tensors[0], leaves[0])
    assert torch.equal(statics.tensors[1], leaves[1])


def test_saved_contents_come_back() -> None:
    x, y = torch.randn(3), torch.randn(1, 3).expand(2, 3)
    statics = StaticInputs([x, y], (), (), copy)
    statics.fill([x, y])
    saved = statics.save()
    for tensor in statics.tensors:
        every_element_once(tensor).zero_()
    saved.restore()
    assert torch.equal(statics.tensors[0], x)
    assert torch.equal(statics.tensors[1], y)


@pytest.mark.parametrize("dim", [0, 1])
def test_a_tail_is_filled_once_and_again_when_somebody_wrote_to_it(dim: int) -> None:
    x = torch.ones(3, 3)
    statics = StaticInputs([x], [Fit(0, dim, 3, 8, -1)], (), copy)
    static = statics.tensors[0]
    statics.fill([x])
    tail = static.narrow(dim, 3, 5)
    assert bool((tail == -1).all())
    tail.fill_(9)
    statics.fill([x])  # known to be clean, so left alone
    assert bool((tail == 9).all())
    statics.forget_padding()
    statics.fill([x])
    assert bool((tail == -1).all())
    statics.fill([x.new_ones(3, 8) if dim else x.new_ones(8, 3)])
    statics.fill([x])
    assert bool((tail == -1).all())


def test_memory_is_counted_once() -> None:
    x = torch.ones(100)
    alone = StaticInputs([x], (), (), copy).nbytes
    twice = StaticInputs([x, x], (), overlaps([x, x]), copy).nbytes
    assert alone == 400
    assert 400 <= twice <= 432
    wide = torch.ones(1).expand(1000)
    assert StaticInputs([wide], (), (), copy).nbytes < 64
