"""Python side effects: not replayed, so refused with a warning, and never done twice."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import OstinatoWarning, Outcome, Reason, graphed

CALLS = 0
KEPT: Any = None
TABLE: dict[str, Any] = {}


class Stateful(nn.Module):
    """Every method has one side effect, and computes with what it changed."""

    total = 0

    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None
        self.calls = 0
        self.log: list[float] = []
        self.recent: deque[int] = deque(maxlen=3)
        self.seen: set[int] = set()
        self.stats: dict[str, int] = {"n": 0}
        self.inner = nn.Identity()
        self.rng = np.random.default_rng(0)
        self.dice = random.Random(0)

    def keeps_an_activation(self, x: Tensor) -> Tensor:
        self.last = x * 2
        return self.last + 1

    def counts(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls

    def counts_on_the_class(self, x: Tensor) -> Tensor:
        type(self).total += 1
        return x + type(self).total

    def appends(self, x: Tensor) -> Tensor:
        self.log.append(1.0)
        return x + len(self.log)

    def appends_to_a_deque(self, x: Tensor) -> Tensor:
        self.recent.append(len(self.recent))
        return x + len(self.recent)

    def adds_to_a_set(self, x: Tensor) -> Tensor:
        self.seen.add(len(self.seen))
        return x + len(self.seen)

    def sets_an_entry(self, x: Tensor) -> Tensor:
        self.stats["n"] += 1
        return x + self.stats["n"]

    def sets_an_attribute_of_a_part(self, x: Tensor) -> Tensor:
        self.inner.mark = getattr(self.inner, "mark", 0) + 1
        return x + self.inner.mark

    def assigns_a_global(self, x: Tensor) -> Tensor:
        global CALLS
        CALLS += 1
        return x + CALLS

    def only_writes_a_global(self, x: Tensor) -> Tensor:
        global KEPT
        KEPT = x * 2
        return x

    def sets_an_entry_of_a_global(self, x: Tensor) -> Tensor:
        TABLE["n"] = TABLE.get("n", 0) + 1
        return x + TABLE["n"]

    def draws_from_random(self, x: Tensor) -> Tensor:
        return x + random.random()

    def draws_from_numpy(self, x: Tensor) -> Tensor:
        return x + float(np.random.rand())

    def draws_from_a_generator_of_its_own(self, x: Tensor) -> Tensor:
        return x + float(self.rng.random())

    def draws_from_dice_of_its_own(self, x: Tensor) -> Tensor:
        return x + self.dice.random()

    def counts_on_the_function(self, x: Tensor) -> Tensor:
        tick.calls = getattr(tick, "calls", 0) + 1  # type: ignore[attr-defined]
        return x + tick.calls  # type: ignore[attr-defined]


def tick() -> None:
    """Holds a count."""


METHODS = [name for name in vars(Stateful) if not name.startswith("_") and name != "total"]


def reset() -> None:
    global CALLS, KEPT
    CALLS, KEPT, Stateful.total = 0, None, 0
    TABLE.clear()
    tick.__dict__.clear()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    reset()


@pytest.mark.parametrize("admit_after", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_a_side_effect_is_refused_warned_of_and_done_once_per_call(
    method: str, admit_after: int, device: torch.device
) -> None:
    random.seed(1)
    np.random.seed(1)
    x = torch.zeros(2, device=device)
    expected = _answers(getattr(Stateful(), method), x)
    reset()
    random.seed(1)
    np.random.seed(1)
    module = Stateful()
    runner = graphed(getattr(module, method), admit_after=admit_after)
    with pytest.warns(OstinatoWarning, match="side effect would not be replayed"):
        found = _answers(runner, x)
    assert found == expected
    assert runner.report().replays == 0
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (
        Outcome.EAGER,
        Reason.PYTHON_SIDE_EFFECT,
    )


def _answers(fn: Callable[[Tensor], Tensor], x: Tensor) -> list[Any]:
    return [fn(x).tolist() for _ in range(6)]


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("keeps_an_activation", "self.last = x * 2"),
        ("counts", "self.calls += 1"),
        ("assigns_a_global", "CALLS += 1"),
        ("only_writes_a_global", "KEPT = x * 2"),
    ],
)
def test_the_warning_names_what_is_assigned_and_where(
    method: str, line: str, device: torch.device
) -> None:
    runner = graphed(getattr(Stateful(), method), admit_after=1)
    with pytest.warns(OstinatoWarning) as caught:
        runner(torch.zeros(1, device=device))
    text = str(caught[0].message)
    assert line in text
    assert "test_effects.py:" in text
    assert "ostinato explain python-side-effect" in text
    assert caught[0].filename == __file__


def test_a_variable_of_an_enclosing_function_counts_too(device: torch.device) -> None:
    calls = 0

    def count(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x + calls

    runner = graphed(count)
    x = torch.zeros(1, device=device)
    with pytest.warns(OstinatoWarning, match="calls"):
        assert [runner(x).item() for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_the_caller_s_activation_is_the_one_of_its_own_call(device: torch.device) -> None:
    module = Stateful()
    runner = graphed(module.keeps_an_activation, admit_after=1)
    with pytest.warns(OstinatoWarning):
        runner(torch.full((2,), 1.0, device=device))
    for value in (1.0, 2.0, 3.0):
        runner(torch.full((2,), value, device=device))
        assert module.last.tolist() == [2 * value] * 2


class Lazy(nn.Module):
    """Builds a table on first use, one for each length."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, Tensor] = {}
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if self.table is None:
            self.table = torch.ones((), device=x.device)
        if n not in self.tables:
            self.tables[n] = torch.arange(n, device=x.device)
        return x + self.tables[n] + self.table


@pytest.mark.parametrize("on_unfit", ["eager", "raise"])
@pytest.mark.parametrize("admit_after", [1, 2])
def test_a_cache_built_on_first_use_is_not_refused_for_ever(
    admit_after: int, on_unfit: Any, device: torch.device
) -> None:
    runner = graphed(Lazy(), admit_after=admit_after, on_unfit=on_unfit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OstinatoWarning)
        for _ in range(4):
            for n in (2, 3, 4):
                y = runner(torch.zeros(n, device=device))
                assert y.tolist() == [1.0 + i for i in range(n)]
        for n in (2, 3, 4):
            runner(torch.zeros(n, device=device))
            assert runner.last is not None
            assert runner.last.outcome is Outcome.REPLAYED


def test_an_effect_of_a_later_run_is_noticed_too(device: torch.device) -> None:
    log: list[int] = []
    runs = itertools.count().__next__

    def sometimes(x: Tensor) -> Tensor:
        if runs() == 2:  # neither the run observed nor the one that answers: a warm-up
            log.append(1)
        return x * 2

    runner = graphed(sometimes, admit_after=1)
    with pytest.warns(OstinatoWarning, match="list"):
        runner(torch.ones(1, device=device))
    assert log == []


def test_a_fixed_function_is_recorded_after_all(device: torch.device) -> None:
    class Debug(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.debug = True

        def forward(self, x: Tensor) -> Tensor:
            if self.debug:
                x.sum().item()
            return x * 2

    module = Debug()
    runner = graphed(module)
    x = torch.ones(2, device=device)
    for _ in range(4):
        runner(x)
    assert runner.last is not None
    assert runner.last.reason is Reason.HOST_SYNC
    module.debug = False
    for _ in range(3):
        runner(x)
    assert runner.last.outcome is Outcome.REPLAYED


def test_a_function_that_is_refused_is_observed_ever_more_rarely(device: torch.device) -> None:
    ran: list[int] = []
    tick = map(ran.append, itertools.count()).__next__

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            tick()
            self.calls += 1
            return x + self.calls

    runner = graphed(Counting())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OstinatoWarning)
        for _ in range(200):
            runner(torch.zeros(1, device=device))
    assert runner.fn.calls == 200
    assert 200 < len(ran) <= 200 + 10


# Iterators: what an extra run takes from one is gone.

ITERATORS: dict[str, Callable[[], Iterator[int]]] = {
    "list": lambda: iter([*range(9)]),
    "range": lambda: iter(range(9)),
    "count": itertools.count,
    "map": lambda: map(int, range(9)),
    "generator": lambda: (number for number in range(9)),
    "chain": lambda: itertools.chain(range(9)),
}
SHARED: Any = None


class Advancing(nn.Module):
    def __init__(self, numbers: Iterator[int]) -> None:
        super().__init__()
        self.numbers = numbers
        self.boxed = {"in a box": [numbers]}

    def attribute(self, x: Tensor) -> Tensor:
        return x + next(self.numbers)

    def in_a_container(self, x: Tensor) -> Tensor:
        return x + next(self.boxed["in a box"][0])

    def through_an_object(self, x: Tensor) -> Tensor:
        return x + next(Own(self.numbers))


class Own:
    def __init__(self, inner: Iterator[int]) -> None:
        self._inner = inner

    def __iter__(self) -> Own:
        return self

    def __next__(self) -> int:
        return next(self._inner)


def global_step(x: Tensor) -> Tensor:
    return x + next(SHARED)


def _share(numbers: Iterator[int]) -> Callable[[Tensor], Tensor]:
    global SHARED
    SHARED = numbers
    return global_step


def _wrapped(numbers: Iterator[int]) -> Callable[[Tensor], Tensor]:
    own = Own(numbers)
    return lambda x: x + next(own)


ADVANCING: dict[str, Callable[[Iterator[int]], Callable[[Tensor], Tensor]]] = {
    "closure": lambda numbers: lambda x: x + next(numbers),
    "default": lambda numbers: lambda x, numbers=numbers: x + next(numbers),
    "global": _share,
    "attribute": lambda numbers: Advancing(numbers).attribute,
    "container": lambda numbers: Advancing(numbers).in_a_container,
    "object": lambda numbers: Advancing(numbers).through_an_object,
    "wrapped": _wrapped,
}


@pytest.mark.parametrize("kind", ITERATORS)
@pytest.mark.parametrize("holder", ADVANCING)
def test_a_step_that_advances_an_iterator_takes_one_item_per_call(
    holder: str, kind: str, device: torch.device
) -> None:
    runner = graphed(ADVANCING[holder](ITERATORS[kind]()), admit_after=2)
    x = torch.zeros(1, device=device)
    with pytest.warns(OstinatoWarning, match="may take an item from the"):
        assert [int(runner(x)) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT


def test_an_iterator_that_the_step_does_not_name_is_no_obstacle(device: torch.device) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.batches = iter([1, 2, 3])
            self.scale = 2.0

        def evaluate(self, x: Tensor) -> Tensor:
            return x * self.scale

    trainer = Trainer()
    runner = graphed(trainer.evaluate, admit_after=1)
    for _ in range(2):
        runner(torch.ones(1, device=device))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    assert next(trainer.batches) == 1


KEPT_ENTRIES = [0.0]


def exchanges_an_entry(x: Tensor) -> Tensor:
    KEPT_ENTRIES[0] = -0.0
    return x * 2


def appends_an_entry(x: Tensor) -> Tensor:
    KEPT_ENTRIES.append(1.0)
    return x * 2


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (exchanges_an_entry, r"changes the list .*: another entry among its 1\b"),
        (appends_an_entry, r"changes the list .*: from 1 entries to 2\b"),
    ],
)
def test_a_changed_list_is_told_with_what_was_counted(fn: Any, text: str) -> None:
    KEPT_ENTRIES[:] = [0.0]
    with pytest.warns(OstinatoWarning, match=text):
        graphed(fn, admit_after=1)(torch.ones(2))
