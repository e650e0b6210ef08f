"""A forward that stores what the caller reads later (pytorch#114844: attribute not updated).

A replay runs no Python, so such a forward runs eagerly, with a warning that names what it stores.
"""

from __future__ import annotations

import contextvars
import dataclasses
import random
import threading
import warnings
import weakref
from collections import ChainMap, UserDict, UserList
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike, random_state, seed
from graphs import elsewhere
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


class Slotted:
    __slots__ = ("last", "unset")

    def __init__(self) -> None:
        self.last: Any = None


@dataclasses.dataclass(slots=True)
class Stats:
    last: Any = None


class Key:
    pass


KEY = Key()
BY_KEY: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("current", default=None)


class Elsewhere(nn.Module):
    """Stores what it computed where no `vars(self)` shows it."""

    def __init__(self, store: Callable[[Any, Tensor], None]) -> None:
        super().__init__()
        self.store = store
        self.linear = nn.Linear(3, 3).requires_grad_(False)
        self.register_buffer("buffer", torch.zeros(1))
        self._hidden: Any = None
        self.slotted, self.stats = Slotted(), Stats()
        self.local = threading.local()
        self.chain: Any = ChainMap({}, {})
        self.own: Any = UserDict()
        self.listed: Any = UserList([None])

    @property
    def hidden(self) -> Any:
        return self._hidden

    @hidden.setter
    def hidden(self, value: Any) -> None:
        self._hidden = value

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.store(self, y)
        return y.relu()


def on_a_tensor(m: Any, y: Tensor) -> None:
    m.buffer.last = y


def on_a_weight(m: Any, y: Tensor) -> None:
    m.linear.weight.last = y


def in_a_slot(m: Any, y: Tensor) -> None:
    m.slotted.last = y


def in_an_unset_slot(m: Any, y: Tensor) -> None:
    m.slotted.unset = y


def in_a_dataclass_with_slots(m: Any, y: Tensor) -> None:
    m.stats.last = y


def for_this_thread(m: Any, y: Tensor) -> None:
    m.local.last = y


def in_a_context_variable(_: Any, y: Tensor) -> None:
    CURRENT.set(y)


def in_a_chain_of_dicts(m: Any, y: Tensor) -> None:
    m.chain["last"] = y


def in_a_dict_in_python(m: Any, y: Tensor) -> None:
    m.own["last"] = y


def in_a_list_in_python(m: Any, y: Tensor) -> None:
    m.listed[0] = y


def in_an_attribute_of_a_module(_: Any, y: Tensor) -> None:
    elsewhere.last = y


def in_a_new_attribute_of_torch(_: Any, y: Tensor) -> None:
    torch.last_of_footgun = y  # type: ignore[attr-defined]


def in_a_module_imported_inside(_: Any, y: Tensor) -> None:
    import graphs.elsewhere as other

    other.last = y


def by_a_setter(m: Any, y: Tensor) -> None:
    m.hidden = y


def in_a_new_global(_: Any, y: Tensor) -> None:
    globals()["FRESH"] = y


def by_a_weak_key(_: Any, y: Tensor) -> None:
    BY_KEY[KEY] = y


STORES: dict[Callable[[Any, Tensor], None], Callable[[Any], Any]] = {
    on_a_tensor: lambda m: m.buffer.last,
    on_a_weight: lambda m: m.linear.weight.last,
    in_a_slot: lambda m: m.slotted.last,
    in_an_unset_slot: lambda m: m.slotted.unset,
    in_a_dataclass_with_slots: lambda m: m.stats.last,
    for_this_thread: lambda m: m.local.last,
    in_a_context_variable: lambda m: CURRENT.get(),
    in_a_chain_of_dicts: lambda m: m.chain["last"],
    in_a_dict_in_python: lambda m: m.own["last"],
    in_a_list_in_python: lambda m: m.listed[0],
    in_an_attribute_of_a_module: lambda m: elsewhere.last,
    in_a_new_attribute_of_torch: lambda m: torch.last_of_footgun,  # type: ignore[attr-defined]
    in_a_module_imported_inside: lambda m: elsewhere.last,
    by_a_setter: lambda m: m.hidden,
    in_a_new_global: lambda m: globals()["FRESH"],
    by_a_weak_key: lambda m: BY_KEY[KEY],
}
"""How each is stored, and read again."""


@pytest.mark.parametrize("store", STORES)
@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
def test_what_is_stored_elsewhere_is_that_of_the_latest_call_too(
    store: Callable[[Any, Tensor], None], device: torch.device
) -> None:
    module = Elsewhere(store).to(device)
    g = graphed(module)
    kept = []
    for rows in (2, 2, 3, 3, 2, 3, 2):
        x = torch.randn(rows, 3, device=device)
        g(x)
        kept.append((STORES[store](module), module.linear(x)))
    assert g.last is not None
    alike([stored for stored, _ in kept], [expected for _, expected in kept])
    assert g.last.reason is Reason.PYTHON_SIDE_EFFECT


@pytest.mark.parametrize("holder", ["buffer", "local"])
@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
def test_a_counter_on_a_tensor_or_of_a_thread_counts_each_call_once(
    holder: str, device: torch.device
) -> None:
    class CountsElsewhere(Elsewhere):
        def forward(self, x: Tensor) -> Tensor:
            if holder == "buffer":
                self.buffer.n += 1
            else:
                self.local.n += 1
            return x * 2

    module = CountsElsewhere(on_a_tensor).to(device)
    getattr(module, holder).n = 0
    g = graphed(module)
    for calls in range(1, 6):
        g(torch.zeros(1, device=device))
        assert getattr(module, holder).n == calls


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
