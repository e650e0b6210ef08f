"""What a run asks or sets on a tensor in Python: no key holds it, and no replay repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import OstinatoWarning, Outcome, Reason, Runner, graphed
from ostinato.graphs.observe import Refusal, observe

CPU = torch.device("cpu")
WEIGHT = torch.ones(2)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def refusals(step: Callable[[Tensor], object]) -> list[Refusal]:
    x = torch.ones(2)
    return observe(lambda: step(x), [x], device=CPU).refusals


ASKS: dict[str, Callable[[Tensor], object]] = {
    "Tensor.grad": lambda x: x.grad is None,
    "Tensor._base": lambda x: x._base is None,
    "Tensor._base of a view": lambda x: x[:1]._base is x,
    "Tensor._version": lambda x: x._version,
    "Tensor.grad_fn": lambda x: x.grad_fn,
    "Tensor.is_leaf": lambda x: x.is_leaf,
    "Tensor.storage_offset": lambda x: x[1:].storage_offset(),
    "Tensor.is_shared": lambda x: x.is_shared(),
    "Tensor.is_inference": lambda x: x.is_inference(),
    "Tensor._is_view": lambda x: x._is_view(),
}


@pytest.mark.parametrize("name", ASKS)
def test_a_fact_of_an_input_that_no_key_holds_is_refused(name: str) -> None:
    first = refusals(ASKS[name])[0]
    assert (first.reason, first.op) == (Reason.UNSUPPORTED_INPUT, name.partition(" ")[0])
    assert (first.where or "").startswith("test_observe_facts.py:")


def test_facts_of_tensors_that_are_no_inputs_may_be_asked() -> None:
    asked = lambda x: ((x + 1).storage_offset(), WEIGHT.grad, (x * 2)._base, x.requires_grad)  # noqa: E731
    assert not refusals(asked)


SETS: dict[str, Callable[[Tensor], object]] = {
    "Tensor.grad =": lambda x: setattr(x, "grad", torch.ones(2)),
    "Tensor.data =": lambda x: setattr(x, "data", torch.zeros(2)),
    "Tensor.data = of a weight": lambda x: setattr(WEIGHT, "data", torch.zeros(2)),
    "Tensor.requires_grad =": lambda x: setattr(x, "requires_grad", True),
    "Tensor.requires_grad_": lambda x: x.requires_grad_(),
}


@pytest.mark.parametrize("name", SETS)
def test_what_is_set_on_a_tensor_is_refused(name: str) -> None:
    first = refusals(SETS[name])[0]
    assert (first.reason, first.op) == (Reason.PYTHON_SIDE_EFFECT, name.partition(" of")[0])
    assert (first.where or "").startswith("test_observe_facts.py:")


def test_a_gradient_switched_off_where_it_is_off_changes_nothing() -> None:
    assert not refusals(lambda x: torch.zeros(2).requires_grad_(False))


EXCHANGES: dict[str, Callable[[Tensor], object]] = {
    "data": lambda t: setattr(t, "data", torch.zeros(3, 3)),
    "set_": lambda t: t.set_(torch.zeros(3, 3)),  # type: ignore[call-overload]
    "resize_": lambda t: t.resize_(1),
    "t_": lambda t: t.t_(),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_memory_that_a_run_exchanged_is_put_back(name: str) -> None:
    x, weight = torch.ones(2, 3), torch.full((2, 3), 7.0)
    homes = [t.data_ptr() for t in (x, weight)]

    def step() -> Tensor:
        EXCHANGES[name](x)
        EXCHANGES[name](weight)
        return torch.ones(1)

    seen = observe(step, [x], device=CPU)
    assert seen.refusals[0].reason is Reason.PYTHON_SIDE_EFFECT
    seen.restore()
    assert [t.data_ptr() for t in (x, weight)] == homes
    assert torch.equal(x, torch.ones(2, 3))
    assert torch.equal(weight, torch.full((2, 3), 7.0))


def tag(x: Tensor) -> Tensor:
    x.tag = 1  # type: ignore[attr-defined]
    return x * 2


def test_an_attribute_set_on_an_input_is_there_after_every_call(device: torch.device) -> None:
    g: Runner[[Tensor], Tensor] = graphed(tag, admit_after=1)
    with pytest.warns(OstinatoWarning, match="assigns a int to x.tag"):
        g(torch.ones(2, device=device))
    for _ in range(3):
        x = torch.ones(2, device=device)
        g(x)
        assert vars(x) == {"tag": 1}
    assert g.last is not None
    assert g.last.reason is Reason.PYTHON_SIDE_EFFECT
    assert "x.tag = 1" in g.last.detail


def test_a_tensor_with_an_attribute_that_the_code_names_is_not_recorded() -> None:
    g: Runner[[Tensor], Tensor] = graphed(lambda x: x * getattr(x, "gain", 1.0), admit_after=1)
    x = torch.zeros(2)  # on which both ways agree
    x.gain = 3.0  # type: ignore[attr-defined]
    g(x)
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.UNSUPPORTED_INPUT)
    another = torch.ones(3)
    another.other = 1  # type: ignore[attr-defined]
    g(another)
    assert g.last.outcome is Outcome.RECORDED


def is_parameter(x: Tensor) -> Tensor:
    return x + isinstance(x, nn.Parameter)


def has_gradient(x: Tensor) -> Tensor:
    return x + x.requires_grad


@pytest.mark.parametrize(
    ("fn", "other"),
    [
        (is_parameter, lambda: nn.Parameter(torch.zeros(2), requires_grad=False)),
        (has_gradient, lambda: torch.zeros(2).requires_grad_()),
    ],
)
def test_the_kind_of_a_tensor_is_part_of_the_key(
    fn: Callable[[Tensor], Tensor], other: Callable[[], Any]
) -> None:
    g: Runner[[Tensor], Tensor] = graphed(fn, admit_after=1)
    for _ in range(2):
        assert g(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert g(other()).tolist() == [1.0, 1.0]
