"""Arguments that share memory with what the function writes or holds run eagerly, and right."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphs.replaying import check_replay
from ostinato.graphs import Outcome, Reason, graphed


def averages(state: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: state.mul_(0.5).add_(x).clone()


def writes_its_argument(state: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: x.add_(1) + state


def counts_in_front(state: Tensor) -> Callable[[Tensor], Tensor]:
    def step(x: Tensor) -> Tensor:
        state[:2] += 1
        return x * 2

    return step


@pytest.mark.parametrize("make", [averages, writes_its_argument, counts_in_front])
@pytest.mark.parametrize("when", ["recorded", "replayed"])
def test_state_given_as_an_argument_is_no_copy(
    make: Callable[[Tensor], Callable[[Tensor], Tensor]], when: str, device: torch.device
) -> None:
    mine, theirs = torch.ones(4, device=device), torch.ones(4, device=device)
    runner, eager = graphed(make(mine), admit_after=1), make(theirs)
    if when == "replayed":
        for _ in range(2):
            runner(torch.ones(4, device=device))
            eager(torch.ones(4, device=device))
    torch.testing.assert_close(runner(mine), eager(theirs))
    torch.testing.assert_close(mine, theirs)
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.UNSUPPORTED_INPUT)
    for _ in range(4):
        x = torch.full((4,), 3.0, device=device)
        torch.testing.assert_close(runner(x.clone()), eager(x.clone()))
    assert runner.last.outcome is Outcome.REPLAYED
    torch.testing.assert_close(mine, theirs)


def test_an_argument_beside_the_written_memory_is_replayed(device: torch.device) -> None:
    memory = torch.ones(8, device=device)
    runner = graphed(averages(memory[:4]), admit_after=1)
    runner(memory[4:])
    runner(memory[4:])
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_a_weight_that_is_only_read_may_be_an_argument(device: torch.device) -> None:
    weight = torch.ones(4, device=device)
    runner = graphed(lambda x: x * weight, admit_after=1)
    runner(torch.ones(4, device=device))
    check_replay(runner, weight)


@pytest.mark.parametrize(
    "change", [lambda x: x.t_(), lambda x: x.transpose_(0, 1), lambda x: x.resize_(2, 2)]
)
def test_a_shape_changed_in_place_changes_once_a_call(
    change: Callable[[Tensor], Tensor], device: torch.device
) -> None:
    def step(x: Tensor) -> Tensor:
        change(x)
        return x + 1

    runner = graphed(step, admit_after=1)
    for _ in range(4):
        mine = torch.randn(3, 4, device=device)
        theirs = mine.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.testing.assert_close(runner(mine), step(theirs))
        torch.testing.assert_close(mine, theirs)
        assert runner.last is not None
        assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
