"""A list, dict, set or deque that a call changes in place is changed once by each call."""

from __future__ import annotations

import bisect
import heapq
import operator
import random
from collections import OrderedDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.errors import OstinatoError
from ostinato.graphs import Buckets, Reason, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")

STATS: Any = []
CALLS = 6


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.inference_mode():
        yield


class Log(list[int]):
    """A list that says of itself that it is empty, and takes nothing by its own methods."""

    def clear(self) -> None:
        raise RuntimeError("a log is not cleared")

    def __len__(self) -> int:
        return list.__len__(self)


def _add(held: Any, value: Any) -> None:
    held += value


def _in_text(held: Any) -> None:
    exec("held.append(1)", {"held": held})


def _in_a_formula(held: Any) -> None:
    eval("held.append(1)", {"held": held})


Change = Callable[[Any], Any]

LISTS: dict[str, Change] = {
    "+=": lambda held: _add(held, [1]),
    "iadd": lambda held: operator.iadd(held, [1]),
    "iconcat": lambda held: operator.iconcat(held, [1]),
    "setitem": lambda held: operator.setitem(held, 0, held[0] + 1),
    "delitem": lambda held: operator.delitem(held, 0),
    "*=": lambda held: operator.imul(held, 2),
    "list.__init__": lambda held: list.__init__(held, [7, *held]),  # type: ignore[misc]
    "heapreplace": lambda held: heapq.heapreplace(held, 5),
    "insort": lambda held: bisect.insort(held, 3),
    "shuffled": lambda held: random.Random(0).shuffle(held),
    "exec": _in_text,
    "eval": _in_a_formula,
}
SETS: dict[str, Change] = {
    "|=": lambda held: operator.ior(held, {len(held) + 20}),
    "^=": lambda held: operator.ixor(held, {len(held)}),
    "-=": lambda held: operator.isub(held, {max(held)}),
    "symmetric_difference_update": lambda held: held.symmetric_difference_update({len(held)}),
    "pop": lambda held: held.pop(),
    "intersection_update": lambda held: held.intersection_update(sorted(held)[1:]),
}
DEQUES: dict[str, Change] = {
    "+=": lambda held: _add(held, [1]),
    "rotate": lambda held: held.rotate(1),
    "*=": lambda held: operator.imul(held, 2),
}
DICTS: dict[str, Change] = {
    "|=": lambda held: operator.ior(held, {len(held): 1}),
    "__ior__": lambda held: held.__ior__({len(held): 1}),
    "setitem": lambda held: operator.setitem(held, 0, held[0] + 1),
}
KINDS: list[tuple[str, Any, dict[str, Change]]] = [
    ("list", list, LISTS),
    ("log", Log, LISTS),
    ("set", set, SETS),
    ("deque", deque, DEQUES),
    ("dict", dict, DICTS),
    ("OrderedDict", OrderedDict, DICTS),
    ("defaultdict", lambda entries: defaultdict(int, entries), DICTS),
]
ALL = [
    pytest.param(made, change, id=f"{kind} {name}")
    for kind, made, changes in KINDS
    for name, change in changes.items()
]


def _filled(made: Any, change: Any) -> Any:
    if any(change is each for each in DICTS.values()):
        return made({each: each for each in range(9)})
    return made(range(9))


def _seen_in(held: Any) -> float:
    """A number that says what a container holds, and in which order."""
    return float(sum(place * item for place, item in enumerate(held, 1)))


def _as_lists(held: Any) -> Any:
    return list(held.items()) if isinstance(held, dict) else list(held)


def _check(
    build: Callable[[], tuple[Callable[[Tensor], Tensor], Callable[[], Any]]], **options: Any
) -> Any:
    """Compare the results, and the container afterwards, with those of eager calls."""
    fn, held = build()
    expected = [float(fn(torch.ones(1))) for _ in range(CALLS)]
    expected_held = held()
    fn, held = build()
    runner = graphed(fn, **options)
    assert [float(runner(torch.ones(1))) for _ in range(CALLS)] == expected
    assert held() == expected_held
    return runner


@pytest.mark.parametrize("options", [{}, {"admit_after": 1}, {"admit_after": 1, "verify_every": 1}])
@pytest.mark.parametrize(("made", "change"), ALL)
def test_each_call_changes_it_once(made: Any, change: Any, options: dict[str, Any]) -> None:
    def build() -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
        kept = _filled(made, change)

        def step(x: Tensor) -> Tensor:
            held = kept
            change(held)
            return x * _seen_in(held)

        return step, lambda: _as_lists(kept)

    runner = _check(build, **options)
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
    assert "kept" in runner.last.detail


@pytest.mark.parametrize(("made", "change"), ALL)
def test_a_runner_that_raises_changes_nothing(made: Any, change: Any) -> None:
    kept = _filled(made, change)

    def step(x: Tensor) -> Tensor:
        change(kept)
        return x * _seen_in(kept)

    twin = _filled(made, change)
    runner = graphed(step, admit_after=1, on_unfit="raise")
    codes: list[str] = []
    for _ in range(4):
        try:
            value = float(runner(torch.ones(1)))
        except OstinatoError as error:
            codes.append(error.code)
        else:
            change(twin)
            assert value == _seen_in(twin)
        assert _as_lists(kept) == _as_lists(twin)
    assert codes == [str(Reason.PYTHON_SIDE_EFFECT)] * 3


@pytest.mark.parametrize("admit_after", [1, 2])
def test_an_attribute_of_a_module(admit_after: int) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def forward(self, x: Tensor) -> Tensor:
            self.seen += [1]
            return x * len(self.seen)

    def build() -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
        model = Model()
        return model, lambda: model.seen

    runner = _check(build, admit_after=admit_after)
    assert "seen" in runner.last.detail
    assert "`self.seen += [1]`" in runner.last.detail


@pytest.mark.parametrize("admit_after", [1, 2])
def test_a_nonlocal_a_hook_and_a_container_within_a_large_one(admit_after: int) -> None:
    def nonlocal_one() -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
        seen: list[int] = []

        def step(x: Tensor) -> Tensor:
            nonlocal seen
            seen += [1]
            return x * len(seen)

        return step, lambda: seen

    def hooked() -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
        global STATS
        STATS = []
        model = nn.Identity()

        def hook(module: nn.Module, args: Any, result: Tensor) -> Tensor:
            global STATS
            STATS += [1]
            return result * len(STATS)

        model.register_forward_hook(hook)
        return model, lambda: STATS

    def within() -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
        table: list[Any] = [[] for _ in range(5000)]

        def step(x: Tensor) -> Tensor:
            row = table[4999]
            row += [1]
            return x * len(row)

        return step, lambda: table[4999]

    for build in (nonlocal_one, hooked, within):
        assert _check(build, admit_after=admit_after).last.reason is Reason.PYTHON_SIDE_EFFECT


@pytest.mark.parametrize("way", ["globals", "exec"])
def test_a_global_found_by_a_text(way: str) -> None:
    def build() -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
        global STATS
        STATS = []

        def by_globals(x: Tensor) -> Tensor:
            stats = globals()["STATS"]
            stats += [1]
            return x * len(stats)

        def by_exec(x: Tensor) -> Tensor:
            exec("STATS.append(1)")
            return x * eval("len(STATS)")

        return by_globals if way == "globals" else by_exec, lambda: STATS

    assert _check(build, admit_after=1).last.reason is Reason.PYTHON_SIDE_EFFECT


def test_runs_on_fake_tensors_put_it_back_too() -> None:
    def build() -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
        kept = Log([1])
        older: UserList[int] = UserList([1])
        numbers = set(range(9))

        def step(x: Tensor) -> Tensor:
            if x.shape[0] == 3:  # only where the size is tried out
                _add(kept, [1])
                operator.iadd(older, [1])
                numbers.pop()
            return x * 2

        return step, lambda: (list(kept), list(older), numbers.pop())

    fn, held = build()
    runner = graphed(fn, admit_after=1, buckets={"x": Buckets(dim=0, sizes=(4, 8))})
    for size in (2, 2, 5, 5):
        runner(torch.ones(size))
    assert held() == ([1], [1], 0)
