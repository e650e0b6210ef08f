"""Inside `torch.jit.trace` and `torch.fx` a graphed callable runs as plain code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato import Buckets
from ostinato.graphs import Outcome, Runner, graphed

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def step(x: Tensor) -> Tensor:
    return x * 2 + 1


def _called(times: int, **options: Any) -> Runner[..., Any]:
    runner = graphed(step, admit_after=1, **options)
    for _ in range(times):
        runner(X)
    return runner


@pytest.mark.parametrize("calls", [0, 1, 5], ids=["cold", "recorded", "recalled"])
@pytest.mark.parametrize("by", ["jit", "fx"])
def test_a_trace_holds_the_operations_of_the_callable(by: str, calls: int) -> None:
    runner = _called(calls)
    decided = runner.last
    traced: Any
    if by == "jit":
        traced = torch.jit.trace(lambda x: runner(x), (X,), check_trace=False)
        operations = {node.kind() for node in traced.graph.nodes()}
        assert {"aten::mul", "aten::add"} <= operations
    else:
        traced = torch.fx.symbolic_trace(lambda x: runner(x))
        assert {"call_function"} <= {node.op for node in traced.graph.nodes}
    assert runner.last is decided  # no call was made
    for values in (X + 5, torch.zeros(3)):
        assert torch.equal(traced(values), step(values))


@pytest.mark.parametrize("calls", [1, 5], ids=["recorded", "recalled"])
def test_a_call_without_tensors_is_traced_too(calls: int) -> None:
    held = torch.ones(3)
    runner = graphed(lambda: held * 2, admit_after=1)
    for _ in range(calls):
        runner()
    traced: Any = torch.jit.trace(lambda x: x + runner(), (X,), check_trace=False)
    assert "aten::mul" in {node.kind() for node in traced.graph.nodes()}
    held.fill_(5)
    assert torch.equal(traced(X), X + 10)


def test_after_a_trace_calls_are_replayed_again() -> None:
    runner = _called(5)
    torch.jit.trace(lambda x: runner(x), (X,))
    assert torch.equal(runner(X + 1), step(X + 1))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_a_module_that_calls_a_graphed_one_can_be_traced() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.run = graphed(self.inner, admit_after=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.run(x)  # type: ignore[no-any-return]

    outer = Outer()
    for _ in range(4):
        outer(X)
    traced: Any = torch.jit.trace(outer, (X,))
    torch.testing.assert_close(traced(X + 2), outer.inner(X + 2))


def test_a_padded_call_is_traced_as_it_is() -> None:
    runner = _called(4, buckets={"x": Buckets(0, (4,))})
    traced: Any = torch.jit.trace(lambda x: runner(x), (X,))
    assert torch.equal(traced(torch.arange(7.0)), step(torch.arange(7.0)))
