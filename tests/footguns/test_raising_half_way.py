"""A forward that raises half way through a recording (pytorch#190348, #190308: pool leaked)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from footguns.traces import check_refused, held_bytes, random_state
from graphs.replaying import check_replay, record, spoil
from ostinato import Outcome, Reason, graphed

MEBIBYTE = 1 << 20


class Raising(Exception):
    """The user's own error."""


class Fuse:
    """Raises at the n-th run of a step and never again. It counts in bare memory: out of sight."""

    def __init__(self, blows_at: int, error: Callable[[], BaseException]) -> None:
        self.memory = ctypes.c_long(0)
        self.place = ctypes.addressof(self.memory)
        self.blows_at, self.error = blows_at, error

    def burn(self) -> None:
        runs = ctypes.c_long.from_address(self.place)
        runs.value += 1
        if runs.value == self.blows_at:
            raise self.error()


def numbers(device: torch.device) -> int:
    """A gigabyte would show as well; this much shows in whole blocks of the allocator."""
    return (32 if device.type == "cuda" else 1) * MEBIBYTE // 4


def big_step(fuse: Fuse) -> Callable[[Tensor], Tensor]:
    """Return a step that holds much memory and has drawn random numbers when it raises."""

    def step(x: Tensor) -> Tensor:
        big = x.repeat(numbers(x.device) // x.numel(), 1) * 2
        noise = torch.rand_like(big) + big
        fuse.burn()
        return big[-1] + noise[0] * 0

    return step


def undisturbed(device: torch.device) -> list[object]:
    torch.manual_seed(0)
    torch.rand(numbers(device), device=device)
    return random_state(device)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "own": lambda: Raising("half way"),
    "interrupt": lambda: KeyboardInterrupt("half way"),
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("blows_at", range(1, 8))
def test_an_error_in_any_run_of_a_recording_leaves_nothing_and_the_next_call_works(
    blows_at: int, kind: str, device: torch.device
) -> None:
    """Observation, answer, warm-ups and the recorded run itself: each raises once."""
    wanted_state = undisturbed(device)
    x = torch.arange(4.0, device=device)
    before = held_bytes(device)
    step = big_step(Fuse(blows_at, ERRORS[kind]))
    g = graphed(step, admit_after=1)
    torch.manual_seed(0)
    seen: BaseException | None = None
    try:
        y = g(x)
    except (Raising, KeyboardInterrupt) as error:
        seen = error.with_traceback(None)
    else:
        torch.testing.assert_close(y, x * 2)
        assert random_state(device) == wanted_state
        del y
    # Where the run that was to answer raised, the caller sees the very error.
    assert seen is None or (type(seen), str(seen)) == (type(ERRORS[kind]()), "half way")
    assert gc.isenabled()
    if not g.report().recordings:
        if kind != "interrupt":  # that one goes through to the caller, whatever was going on
            assert g.last is not None
            assert g.last.outcome is Outcome.EAGER
            assert type(ERRORS[kind]()).__name__ in g.last.detail, g.last
        assert held_bytes(device) <= before
        assert g.report().bytes == 0
    for number in range(12):
        torch.testing.assert_close(g(x + number), (x + number) * 2)
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED, g.last
    check_last_replay(g, x)
    g.close()
    assert held_bytes(device) <= before


def check_last_replay(g: Any, x: Tensor) -> None:
    spoil(g)
    torch.testing.assert_close(g(x - 3), (x - 3) * 2)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_while_the_stream_captures_gives_the_memory_back(kind: str) -> None:
    """The report itself: raises only when it is captured; measured in reserved bytes."""
    device = torch.device("cuda:0")
    is_blowing = [True]

    def step(x: Tensor) -> Tensor:
        big = x.repeat(64 * MEBIBYTE // 4 // x.numel(), 1) * 2
        if is_blowing[0] and torch.cuda.is_current_stream_capturing():
            raise ERRORS[kind]()
        return big[-1]

    x = torch.arange(4.0, device=device)
    with graphed(lambda x: x * 2, admit_after=1) as other:
        other(x)
    before = held_bytes(device)
    for _ in range(3):  # a leak adds up
        g = graphed(step, admit_after=1)
        try:
            torch.testing.assert_close(g(x), x * 2)
        except KeyboardInterrupt:
            assert kind == "interrupt"
        assert not torch.cuda.is_current_stream_capturing()
        assert held_bytes(device) <= before
    is_blowing[0] = False
    g = record(step, x)
    check_replay(g, x + 1)
    g.close()
    assert held_bytes(device) <= before


@pytest.mark.parametrize("blows_at", range(1, 8))
def test_warming_ahead_that_raises_leaves_nothing(blows_at: int, device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    before = held_bytes(device)
    g = graphed(big_step(Fuse(blows_at, lambda: Raising("half way"))))
    state = random_state(device)
    with contextlib.suppress(Raising):
        g.warm(x)
    assert random_state(device) == state
    if not g.report().recordings:
        assert held_bytes(device) <= before
    g.close()
    assert held_bytes(device) <= before


def test_an_error_of_the_call_itself_is_the_callers_own_every_time(device: torch.device) -> None:
    g = graphed(lambda x, y: x @ y, admit_after=1)
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"(?i)shape|size"):
            g(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))
    x, y = torch.randn(2, 3, device=device), torch.randn(3, 2, device=device)
    torch.testing.assert_close(g(x, y), x @ y)
    torch.testing.assert_close(g(x, y), x @ y)
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED


def test_a_read_half_way_keeps_nothing_of_what_came_before(device: torch.device) -> None:
    """The commonest way to break a capture: work, then `.item()`."""

    def step(x: Tensor) -> Tensor:
        big = x.repeat(16 * MEBIBYTE // 4 // x.numel(), 1) * 2
        return big[-1] * (1.0 if big.sum().item() > 0 else -1.0)

    check_refused(step, Reason.HOST_SYNC, torch.arange(4.0, device=device), line="big.sum().item()")


def test_garbage_collection_that_was_off_stays_off(device: torch.device) -> None:
    gc.disable()
    try:
        record(lambda x: x * 2, torch.ones(2, device=device))
        assert not gc.isenabled()
        graphed(lambda x: x[x > 0], admit_after=1)(torch.ones(2, device=device))
        assert not gc.isenabled()
    finally:
        gc.enable()
