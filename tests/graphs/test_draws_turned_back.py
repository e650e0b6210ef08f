"""A run that reads, sets or puts back the state of a random generator is not recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ostinato.graphs import Outcome, Reason, graphed
from ostinato.graphs.observe_draws import TurnedBack

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
OWN = torch.Generator()
ANOTHER = torch.Generator().manual_seed(5).get_state()


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    OWN.manual_seed(0)
    with torch.no_grad():
        yield


def forks(x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        return x + torch.rand(2)


def puts_back(x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    made = x + torch.rand(2)
    torch.set_rng_state(state)
    return made


def sets(x: Tensor) -> Tensor:
    torch.set_rng_state(ANOTHER)
    return x + torch.rand(2)


def sets_and_draws_nothing(x: Tensor) -> Tensor:
    torch.set_rng_state(ANOTHER)
    return x + 1


def puts_its_own_back(x: Tensor) -> Tensor:
    state = OWN.get_state()
    made = x + torch.rand(2, generator=OWN)
    OWN.set_state(state)
    return made


def draws_from_a_clone(x: Tensor) -> Tensor:
    return x + torch.rand(2, generator=OWN.clone_state())


def seeds_its_own(x: Tensor) -> Tensor:
    OWN.manual_seed(3)
    return x + torch.rand(2, generator=OWN)


def makes_one(x: Tensor) -> Tensor:
    return x + torch.rand(2, generator=torch.Generator().manual_seed(3))


def asks_for_the_seed(x: Tensor) -> Tensor:
    return x + torch.initial_seed() % 7


def asks_its_own(x: Tensor) -> Tensor:
    return x + OWN.initial_seed() % 7


def through_the_default(x: Tensor) -> Tensor:
    state = torch.default_generator.get_state()
    made = x + torch.rand(2)
    torch.default_generator.set_state(state)
    return made


CASES = [
    forks, puts_back, sets, sets_and_draws_nothing, puts_its_own_back, draws_from_a_clone,
    seeds_its_own, makes_one, asks_for_the_seed, asks_its_own, through_the_default,
]  # fmt: skip


@pytest.mark.parametrize("fn", CASES)
def test_what_is_done_with_the_state_of_a_generator_is_done_at_every_call(
    fn: Callable[[Tensor], Tensor],
) -> None:
    x = torch.zeros(2)
    torch.manual_seed(11)
    OWN.manual_seed(11)
    wanted = [fn(x) for _ in range(4)]
    torch.manual_seed(11)
    OWN.manual_seed(11)
    runner = graphed(fn, admit_after=1, backend="tape")
    for each in wanted:
        torch.testing.assert_close(runner(x), each, rtol=0, atol=0)
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (
        Outcome.EAGER,
        Reason.PYTHON_SIDE_EFFECT,
    )
    assert "test_draws_turned_back.py" in str(runner.last)


def test_a_seed_of_all_is_refused() -> None:
    def step(x: Tensor) -> Tensor:
        torch.random.seed()
        return x + torch.rand(2)

    runner = graphed(step, admit_after=1, backend="tape")
    for _ in range(2):
        runner(torch.zeros(2))
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
    assert "torch.random.seed()" in str(runner.last)


class Recomputing(nn.Module):
    """Draws its dropout once more in the backward pass, from the state of the forward pass."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        linear = nn.Linear(4, 4)
        self.weight = linear.weight
        self.inner = nn.Sequential(linear, nn.Dropout(rate))

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            made = checkpoint(self.inner, x, use_reentrant=False)
            (grad,) = torch.autograd.grad(made.sum(), self.weight)
        return grad


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_torchs_own_putting_back_counts_where_something_is_drawn(rate: float) -> None:
    module = Recomputing(rate)
    runner = graphed(module, admit_after=1, backend="tape")
    x = torch.ones(3, 4)
    torch.manual_seed(11)
    wanted = [module(x) for _ in range(4)]
    torch.manual_seed(11)
    for each in wanted:
        torch.testing.assert_close(runner(x), each)
    assert runner.last is not None
    if rate:
        assert runner.last.outcome is Outcome.EAGER


def test_a_profiler_that_holds_the_hook_changes_nothing_about_it() -> None:
    def ignore(*_: Any) -> None:
        return

    runner = graphed(forks, admit_after=1, backend="tape")
    sys.setprofile(ignore)
    try:
        for _ in range(2):
            runner(torch.zeros(2))
    finally:
        sys.setprofile(None)
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT


def test_draws_of_others_are_no_turning_back() -> None:
    generator = torch.Generator()
    states = TurnedBack([generator])
    assert not states.look()
    first = generator.get_state()
    for _ in range(3):
        torch.rand(1, generator=generator)
        assert not states.look()
        assert not states.look()
    generator.set_state(first)
    assert states.look()
    assert not states.look()


def test_plain_draws_are_recorded(device: torch.device) -> None:
    runner = graphed(lambda x: nn.functional.dropout(x + torch.rand_like(x)), admit_after=1)
    for _ in range(3):
        runner(torch.ones(8, device=device))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
