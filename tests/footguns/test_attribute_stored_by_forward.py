"""A forward that stores what the caller reads later (pytorch#114844: attribute not updated).

A replay runs no Python, so such a forward runs eagerly, with a warning that names what it stores.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike, random_state, seed
from graphs.replaying import check_replay, record
from ostinato import OstinatoWarning, Outcome, Reason, graphed


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.linear(x)
        return self.last.relu()


def test_an_activation_stored_in_an_attribute_is_that_of_the_latest_call(
    device: torch.device,
) -> None:
    module = Remembering().to(device)
    g = graphed(module)
    xs = torch.randn(5, 2, 3, device=device)
    g(xs[0])
    with pytest.warns(OstinatoWarning, match="Python side effect would not be replayed"):
        g(xs[1])
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.PYTHON_SIDE_EFFECT)
    assert "last" in g.last.detail
    for x in xs:
        y = g(x)
        assert module.last is not None
        alike([y, module.last], [module.linear(x).relu(), module.linear(x)])


def test_the_warning_is_given_once_and_names_the_line(device: torch.device) -> None:
    module = Remembering().to(device)
    g = graphed(module)
    x = torch.randn(2, 3, device=device)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(5):
            g(x)
    assert [w.category for w in seen] == [OstinatoWarning]
    assert g.last is not None
    assert "self.last = self.linear(x)" in g.last.detail


class Counting:
    """Everything a step may store into, and what an eager loop leaves there."""

    total = 0

    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[Tensor] = []
        self.by_name: dict[str, Tensor] = {}
        self.names: set[int] = set()

    def count(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 2

    def append(self, x: Tensor) -> Tensor:
        self.seen.append(x * 3)
        return x * 2

    def put(self, x: Tensor) -> Tensor:
        self.by_name["x"] = x * 3
        return x * 2

    def add(self, x: Tensor) -> Tensor:
        self.names.add(len(self.names))
        return x * 2

    def on_the_class(self, x: Tensor) -> Tensor:
        Counting.total += 1
        return x * 2

    def draw(self, x: Tensor) -> Tensor:
        return x * random.random()

    def draw_numpy(self, x: Tensor) -> Tensor:
        return x * float(np.random.rand())

    def state(self) -> Any:
        return [self.calls, self.seen, self.by_name, len(self.names), Counting.total]


@pytest.mark.parametrize(
    "kind", ["count", "append", "put", "add", "on_the_class", "draw", "draw_numpy"]
)
def test_python_state_is_as_after_as_many_eager_calls(kind: str, device: torch.device) -> None:
    def run(calls: Callable[[Counting], Callable[[Tensor], Tensor]]) -> Any:
        seed()
        Counting.total = 0
        counting = Counting()
        fn = calls(counting)
        results = [fn(torch.full((2,), float(i), device=device)) for i in range(5)]
        return results, counting.state(), random_state(device)

    eager = run(lambda counting: getattr(counting, kind))
    with pytest.warns(OstinatoWarning, match="Python side effect"):
        mine = run(lambda counting: graphed(getattr(counting, kind)))
    alike(mine[:2], eager[:2])
    assert mine[2] == eager[2]


def test_a_hook_that_collects_activations_collects_every_one(device: torch.device) -> None:
    """The usual way to read a hidden state."""
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to(device)
    collected: list[Tensor] = []
    module[0].register_forward_hook(lambda _m, _args, out: collected.append(out))
    g = graphed(module)
    xs = torch.randn(5, 2, 3, device=device)
    with pytest.warns(OstinatoWarning, match="Python side effect"):
        _ = [g(x) for x in xs]
    assert len(collected) == len(xs)
    for x, seen in zip(xs, list(collected), strict=True):
        torch.testing.assert_close(seen, nn.functional.linear(x, module[0].weight, module[0].bias))


def test_a_nonlocal_counter_counts_every_call(device: torch.device) -> None:
    count = 0

    def step(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x + count

    g = graphed(step)
    with pytest.warns(OstinatoWarning, match="count"):
        results = [g(torch.zeros(1, device=device)).item() for _ in range(5)]
    assert results == [1, 2, 3, 4, 5]


def test_an_iterator_that_the_step_advances_advances_once_a_call(device: torch.device) -> None:
    numbers: Iterator[int] = iter(range(100))

    def step(x: Tensor) -> Tensor:
        return x + next(numbers)

    g = graphed(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OstinatoWarning)
        results = [int(g(torch.zeros(1, device=device)).item()) for _ in range(5)]
    assert results == [0, 1, 2, 3, 4]


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(3.0, device=x.device)
        return x * self.table


@pytest.mark.parametrize("admit_after", [1, 2])
def test_what_only_the_first_call_stores_is_no_obstacle(
    admit_after: int, device: torch.device
) -> None:
    module = Lazy()
    g = graphed(module, admit_after=admit_after)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OstinatoWarning)
        for _ in range(4):
            g(torch.randn(2, 3, device=device))
    check_replay(g, torch.randn(2, 3, device=device))


def test_an_activation_kept_in_a_buffer_is_replayed(device: torch.device) -> None:
    """The way out that the explanation names: memory that forward writes in place."""

    class Buffered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            self.last.copy_(x * 2)
            return x + 1

    module = Buffered().to(device)
    g = record(module, torch.zeros(2, 3, device=device))
    for _ in range(3):
        x = torch.randn(2, 3, device=device)
        g(x)
        assert g.last is not None
        assert g.last.outcome is Outcome.REPLAYED
        torch.testing.assert_close(module.last, x * 2)
