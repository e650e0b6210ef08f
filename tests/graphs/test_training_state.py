"""What a step of training keeps outside the model: moments, rates, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.01),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, lr=0.01),
    "rprop": lambda weights: torch.optim.Rprop(weights, lr=0.01),
    "adafactor": lambda weights: torch.optim.Adafactor(weights),
}
Trained = tuple[list[float], list[Any]]


def _train(
    make: Callable[[Any], torch.optim.Optimizer],
    step_of: Callable[[nn.Module, torch.optim.Optimizer], Callable[..., Tensor]],
    admit_after: int | None,
) -> Trained:
    """Return the losses, and the weights, gradients and state afterwards."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = make(model.parameters())
    step: Any = step_of(model, optimizer)
    if admit_after is not None:
        step = graphed(step, admit_after=admit_after)
    losses = []
    for call in range(4):
        if call == 2:
            for group in optimizer.param_groups:
                group["lr"] *= 3
        losses.append(float(step(torch.randn(3, 4), torch.randn(3, 2))))
    held: list[Any] = [p.tolist() for p in model.parameters()]
    held += [p.grad.tolist() for p in model.parameters() if p.grad is not None]
    for state in optimizer.state.values():
        held += [v.tolist() if isinstance(v, Tensor) else v for v in state.values()]
    return losses, held


def _whole_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Tensor]:
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step


def _accumulating(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Tensor]:
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return step


@pytest.mark.parametrize("admit_after", [1, 2])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_state_of_an_optimizer_moves_on_once_a_call(make: Any, admit_after: int) -> None:
    expected = _train(make, _whole_step, None)
    assert _train(make, _whole_step, admit_after) == expected


@pytest.mark.parametrize("admit_after", [1, 2])
def test_a_first_gradient_is_that_of_the_call_alone(admit_after: int) -> None:
    make = OPTIMIZERS["momentum"]
    expected = _train(make, _accumulating, None)
    assert _train(make, _accumulating, admit_after) == expected


def test_a_rate_that_is_set_anew_is_noticed() -> None:
    weight = nn.Parameter(torch.zeros(3))
    held = weight.grad = torch.zeros(3)
    optimizer = torch.optim.SGD([weight], lr=1.0)

    def step(grad: Tensor) -> Tensor:
        held.copy_(grad)
        optimizer.step()
        return grad * 1

    runner = graphed(step, admit_after=1)
    with torch.no_grad():
        for _ in range(8):
            runner(torch.ones(3))
            assert runner.last is not None
            if runner.last.outcome is Outcome.REPLAYED:
                break
        assert runner.last is not None
        assert runner.last.outcome is Outcome.REPLAYED
        before = weight.detach().clone()
        optimizer.param_groups[0]["lr"] = 10.0
        runner(torch.ones(3))
    assert torch.equal(weight.detach(), before - 10)
    assert runner.last.outcome is not Outcome.REPLAYED


def test_a_scheduler_steps_once_a_call() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)

    def step(x: Tensor) -> Tensor:
        optimizer.step()
        scheduler.step()
        return x * scheduler.get_last_lr()[0]

    runner = graphed(step, admit_after=1)
    with torch.no_grad():
        rates = [float(runner(torch.ones(1))) for _ in range(4)]
    assert rates == [0.5, 0.25, 0.125, 0.0625]
    assert scheduler.last_epoch == 4
