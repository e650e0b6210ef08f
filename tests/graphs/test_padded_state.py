"""Padding that writes to state shows at the first padded call, whatever that state holds then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphs.replaying import spoil
from ostinato import Buckets, CaptureError, Outcome, Reason, graphed

Step = Callable[[Tensor, Tensor], Tensor]
Make = Callable[[Tensor], Step]

ROWS = 12


def putting(state: Tensor) -> Step:
    def step(rows: Tensor, values: Tensor) -> Tensor:
        state[rows] = values
        return values.clone()

    return step


def adding(state: Tensor) -> Step:
    def step(rows: Tensor, values: Tensor) -> Tensor:
        state.index_add_(0, rows, values)
        return values.clone()

    return step


def largest(state: Tensor) -> Step:
    def step(rows: Tensor, values: Tensor) -> Tensor:
        state.scatter_reduce_(0, rows, values, "amax")
        return values.clone()

    return step


def multiplying(state: Tensor) -> Step:
    def step(rows: Tensor, values: Tensor) -> Tensor:
        state.mul_(2)
        return values.clone()

    return step


def values_like(state: Tensor, rows: int) -> Tensor:
    shape = (rows, *state.shape[1:])
    if state.dtype == torch.bool:
        return torch.ones(shape, dtype=torch.bool, device=state.device)
    if not state.is_floating_point():
        return torch.randint(5, 9, shape, device=state.device)
    return torch.rand(shape, dtype=state.dtype, device=state.device) + 1


def call(state: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Row 0, where the padding goes, is none of the call's."""
    return torch.randperm(ROWS - 1, device=state.device)[:rows] + 1, values_like(state, rows)


def check_agreement(make: Make, zeros: Tensor, first: int) -> Any:
    """Record and call on state of zeros; then, where row 0 holds something, compare with eager."""
    state = zeros.clone()
    g = graphed(make(state), admit_after=1, buckets={"rows": Buckets(0, (8,)), "values": BUCKET})
    for rows in (first, 5, 3):
        g(*call(state, rows))
    numbers = torch.arange(1, state.numel() + 1, device=state.device).view_as(state)
    state.copy_(numbers % 2 if state.dtype == torch.bool else numbers)
    twin = state.clone()
    for rows in (2, 4):
        given = call(state, rows)
        spoil(g)
        g(*given)
        make(twin)(*given)
        assert torch.equal(state, twin)
    return g


BUCKET = Buckets(0, (8,))
LEAKING: dict[str, tuple[Make, tuple[int, ...], torch.dtype]] = {
    "rows": (putting, (ROWS, 4), torch.float32),
    "half": (putting, (ROWS, 4), torch.bfloat16),
    "numbers": (putting, (ROWS,), torch.int64),
    "flags": (putting, (ROWS,), torch.bool),
    "largest": (largest, (ROWS,), torch.float32),
}


@pytest.mark.parametrize("first", [8, 3], ids=["recorded full", "recorded padded"])
@pytest.mark.parametrize("kind", LEAKING)
def test_a_row_that_only_padding_writes_is_found_though_it_held_zeros(
    kind: str, first: int, device: torch.device
) -> None:
    make, shape, dtype = LEAKING[kind]
    g = check_agreement(make, torch.zeros(shape, dtype=dtype, device=device), first)
    assert g.last.outcome is Outcome.EAGER
    assert g.last.reason is Reason.PADDING_LEAKS


@pytest.mark.parametrize("make", [adding, multiplying])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_state_that_padding_leaves_alone_is_replayed_and_left_as_it_was(
    make: Make, dtype: torch.dtype, device: torch.device
) -> None:
    g = check_agreement(make, torch.zeros((ROWS,), dtype=dtype, device=device), 8)
    assert g.last.outcome is Outcome.REPLAYED, g.last


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("first", [8, 3], ids=["recorded full", "recorded padded"])
def test_an_argument_that_padding_writes_is_found_too(
    first: int, dtype: torch.dtype, device: torch.device
) -> None:
    def step(cache: Tensor, rows: Tensor, values: Tensor) -> Tensor:
        cache[rows] = values
        return values.clone()

    g = graphed(step, admit_after=1, buckets={"rows": BUCKET, "values": BUCKET})
    zeros = torch.zeros(ROWS, dtype=dtype, device=device)
    for rows in (first, 5, 3):
        g(zeros.clone(), *call(zeros, rows))
    cache = torch.arange(1, ROWS + 1, device=device).to(dtype)
    twin = cache.clone()
    given = call(cache, 2)
    g(cache, *given)
    step(twin, *given)
    assert torch.equal(cache, twin)
    assert g.last is not None
    assert g.last.reason is Reason.PADDING_LEAKS


def test_a_counter_is_not_moved_on_beyond_its_end(device: torch.device) -> None:
    """Numbers that the call itself wrote are left alone: they may be positions in something."""
    position = torch.zeros(1, dtype=torch.int64, device=device)
    log = torch.zeros(3, device=device)
    mark = torch.ones(1, device=device)  # a number would come from the host

    def step(x: Tensor) -> Tensor:
        log[position] = mark
        position.add_(1)
        return x * 2

    seen: list[int] = []
    g = graphed(step, admit_after=1, buckets={"x": BUCKET})
    for rows in (8, 3, 2):
        g(torch.ones(rows, device=device))
        seen.append(int(position))
    assert seen == [1, 2, 3]
    assert log.tolist() == [1.0] * 3
    assert g.report().recordings == 1


@pytest.mark.parametrize("first", [8, 3], ids=["recorded full", "recorded padded"])
def test_a_fill_that_the_function_cannot_take_is_named_and_the_call_answered(first: int) -> None:
    table = torch.randn(5, 3)  # on the host alone: on a GPU such an index ends the process
    buckets = {"rows": Buckets(0, (8,), fill=99)}
    told = "rows was padded from 3 to 8 with fill=99: declare a fill that the function can take"

    def step(rows: Tensor) -> Tensor:
        return table[rows] * 2

    g = graphed(step, admit_after=1, buckets=buckets, backend="tape")
    for n in (first, 3):
        rows = torch.arange(n) % 5
        assert torch.equal(g(rows), step(rows))
    assert g.last is not None
    assert g.last.outcome is Outcome.EAGER
    assert told in g.last.detail
    raising = graphed(step, admit_after=1, buckets=buckets, backend="tape", on_unfit="raise")
    rows = torch.arange(3)
    for n in (first, 3):
        with contextlib.suppress(CaptureError):
            raising(torch.arange(n) % 5)
    with pytest.raises(CaptureError, match="IndexError"):
        raising(rows)


def test_what_a_failed_check_wrote_is_written_once() -> None:
    seen = torch.zeros(1)
    table = torch.randn(5, 3)

    def step(rows: Tensor) -> Tensor:
        seen.add_(1)
        return table[rows] * 2

    buckets = {"rows": Buckets(0, (8,), fill=99)}
    g = graphed(step, admit_after=1, buckets=buckets, backend="tape")
    for calls, n in enumerate((8, 3, 2), 1):
        g(torch.arange(n) % 5)
        assert seen.item() == calls
