"""A container that a replay would return as a copy is returned by an eager run, as itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@dataclass
class State:
    a: Tensor
    step: int = 0


def written(given: Any) -> Any:
    tensor = (
        given["a"] if isinstance(given, dict) else given[0] if isinstance(given, list) else given.a
    )
    tensor.add_(1)
    return given


MADE: dict[str, Callable[[Tensor], Any]] = {
    "dict": lambda x: {"a": x},
    "list": lambda x: [x],
    "dataclass": State,
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("is_inside", [False, True], ids=["alone", "in another"])
def test_an_argument_that_is_returned_is_the_callers_own(
    kind: str, is_inside: bool, device: torch.device
) -> None:
    def step(given: Any) -> Any:
        return {"state": written(given["state"])} if is_inside else written(given)

    runner = graphed(step, admit_after=1)
    for _ in range(3):
        given = MADE[kind](torch.zeros(2, device=device))
        result = runner({"state": given}) if is_inside else runner(given)
        assert (result["state"] if is_inside else result) is given
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (
        Outcome.EAGER,
        Reason.UNSUPPORTED_OUTPUT,
    )
    path = "given.state" if is_inside else "given"
    assert f"given as {path!r} itself" in str(runner.last)


def test_a_list_that_is_returned_twice_is_one_list(device: torch.device) -> None:
    def step(x: Tensor) -> dict[str, list[Tensor]]:
        made = [x + 1]
        return {"first": made, "last": made}

    runner = graphed(step, admit_after=1)
    for _ in range(3):
        result = runner(torch.ones(2, device=device))
        assert result["first"] is result["last"]
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (
        Outcome.EAGER,
        Reason.UNSUPPORTED_OUTPUT,
    )
    assert "first and last are one list" in str(runner.last)


def test_tuples_and_what_lies_in_containers_are_returned_by_replays(device: torch.device) -> None:
    def step(given: dict[str, Any]) -> Any:
        pair = (given["a"], given["b"][0] + 1)
        return pair, pair, {**given}["a"]

    runner = graphed(step, admit_after=1)
    for _ in range(3):
        a = torch.ones(2, device=device)
        result = runner({"a": a, "b": (a.clone(),)})
        assert result[0][0] is a
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
