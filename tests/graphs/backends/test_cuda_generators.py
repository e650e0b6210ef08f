"""Generators that a capture took into its service draw again, whatever became of the capture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, graphed
from ostinato.graphs.backends import cuda_capture
from ostinato.graphs.backends.cuda_generators import get_out


@contextmanager
def every_capture_broken() -> Iterator[None]:
    """As beside a library that waits for the device all the time: no capture comes to its end."""
    end = cuda_capture._end

    def waits_first(graph: torch.cuda.CUDAGraph) -> None:
        with suppress(RuntimeError):  # CUDA refuses it, and the capture is lost
            torch.cuda.synchronize()
        end(graph)

    patch = pytest.MonkeyPatch()
    patch.setattr(cuda_capture, "_end", waits_first)
    try:
        yield
    finally:
        patch.undo()


def noisy(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def draws(seed: int, count: int, generator: torch.Generator | None = None) -> list[list[float]]:
    device = torch.device("cuda:0")
    if generator is None:
        torch.cuda.manual_seed(seed)
    else:
        generator.manual_seed(seed)
    return [torch.rand(4, device=device, generator=generator).tolist() for _ in range(count)]


@pytest.mark.gpu
def test_the_default_generator_draws_on_after_captures_that_all_broke() -> None:
    x = torch.zeros(4, device="cuda:0")
    wanted = draws(3, 4)
    g = graphed(noisy, admit_after=1)
    torch.cuda.manual_seed(3)
    with every_capture_broken():
        first = g(x).tolist()
    assert g.last is not None
    assert g.last.reason is Reason.CAPTURE_ERROR, g.last
    assert not torch.cuda.is_current_stream_capturing()
    # Where it was, and under the same seed.
    assert [first, *(torch.rand(4, device="cuda:0").tolist() for _ in range(3))] == wanted
    assert draws(3, 4) == wanted


@pytest.mark.gpu
def test_recordings_from_before_and_after_draw_what_eager_calls_draw() -> None:
    x = torch.zeros(4, device="cuda:0")
    old, new = graphed(noisy, admit_after=1), graphed(noisy, admit_after=1)
    for _ in range(2):
        old(x)
    assert old.last is not None
    assert old.last.outcome is Outcome.REPLAYED
    with every_capture_broken():
        new(x)
    wanted = draws(5, 6)
    for runner in (old, new):
        for _ in range(20):
            torch.cuda.manual_seed(5)
            # Never a replay that a new seed does not reach: it raises, and the call runs eagerly.
            assert [runner(x).tolist() for _ in range(6)] == wanted, runner.last
    assert new.last is not None
    assert new.last.outcome is Outcome.REPLAYED, new.last


@pytest.mark.gpu
def test_a_private_generator_draws_on_too() -> None:
    dice = torch.Generator("cuda:0")
    wanted = draws(7, 3, dice)

    def step(x: Tensor) -> Tensor:
        return x + torch.rand(4, device=x.device, generator=dice)

    x = torch.zeros(4, device="cuda:0")
    g = graphed(step, admit_after=1)
    dice.manual_seed(7)
    with every_capture_broken():
        assert g(x).tolist() == wanted[0]
    assert [torch.rand(4, device="cuda:0", generator=dice).tolist() for _ in range(2)] == wanted[1:]
    assert draws(7, 3, dice) == wanted
    for _ in range(20):
        dice.manual_seed(7)
        assert [g(x).tolist() for _ in range(3)] == wanted


@pytest.mark.gpu
def test_broken_captures_leave_no_memory_behind() -> None:
    x = torch.zeros(4, device="cuda:0")

    def held() -> int:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    def broken_once() -> int:
        with graphed(noisy, admit_after=1) as g, every_capture_broken():
            g(x)
        return held()

    broken_once()
    before = broken_once()
    assert broken_once() == before


def test_a_generator_that_draws_is_left_as_it_is(device: torch.device) -> None:
    dice = torch.Generator(device)
    dice.manual_seed(11)
    torch.rand(3, device=device, generator=dice)
    before = dice.get_state()
    get_out(dice)
    assert dice.get_state().tolist() == before.tolist()
