"""The order of the entries of a dict, and the kind of its keys, are part of what a run reads."""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome, Reason, Runner, graphed
from ostinato.graphs.places import Place, Size, same_key
from ostinato.graphs.watch import PlacesInPython, Watch


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def turned(held: dict[Any, Any]) -> None:
    """Put the first entry last."""
    first = next(iter(held))
    held[first] = held.pop(first)


def folded(x: Tensor, values: Any) -> Tensor:
    for value in values:
        x = x * 10 + value
    return x


def with_keywords(x: Tensor, **scales: float) -> Tensor:
    return folded(x, scales.values())


def in_order(x: Tensor, hooked: nn.Module) -> Tensor:
    result: Tensor = hooked(x)
    return result


def hooked() -> nn.Module:
    module = nn.Identity()
    module.register_forward_hook(lambda *a: a[2] * 2)
    module.register_forward_hook(lambda *a: a[2] + 1)
    return module


def numbers(kind: Callable[..., Any]) -> Any:
    return kind({"a": 1.0, "b": 2.0})


def chain() -> nn.Sequential:
    return nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Softmax(0)))


def parameters() -> nn.ParameterDict:
    return nn.ParameterDict({"a": torch.ones(1), "b": torch.full((1,), 2.0)})


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], object], Callable[..., Tensor]]] = {
    "dict": (lambda: numbers(dict), turned, lambda x, d: folded(x, d.values())),
    "of keys only": (lambda: numbers(dict), turned, lambda x, d: folded(x, map(ord, d))),
    "defaultdict": (
        lambda: defaultdict(float, a=1.0, b=2.0), turned, lambda x, d: folded(x, d.values())
    ),
    "Counter": (lambda: Counter("abb"), turned, lambda x, d: folded(x, d.values())),
    "OrderedDict": (lambda: numbers(OrderedDict), turned, lambda x, d: folded(x, d.values())),
    "move_to_end": (
        lambda: numbers(OrderedDict), lambda d: d.move_to_end("a"),
        lambda x, d: folded(x, d.values()),
    ),
    "keywords": (lambda: numbers(dict), turned, lambda x, d: with_keywords(x, **d)),
    "partial": (
        lambda: functools.partial(with_keywords, a=1.0, b=2.0), lambda p: turned(p.keywords),
        lambda x, p: p(x),
    ),
    "ModuleDict": (
        lambda: nn.ModuleDict(chain()._modules), turned,
        lambda x, d: functools.reduce(lambda y, part: part(y), d.values(), x),
    ),
    "Sequential": (chain, lambda m: turned(m._modules), lambda x, m: m(x)),
    "ParameterDict": (
        parameters, lambda d: d.update({"a": d.pop("a")}), lambda x, d: folded(x, d.values())
    ),
    "hooks": (hooked, lambda m: turned(m._forward_hooks), in_order),
    "hooks moved": (
        hooked, lambda m: m._forward_hooks.move_to_end(next(iter(m._forward_hooks))), in_order
    ),
    "attributes": (
        lambda: SimpleNamespace(a=1.0, b=2.0), lambda s: turned(vars(s)),
        lambda x, s: folded(x, vars(s).values()),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_an_entry_that_moves_is_noticed(name: str, device: torch.device) -> None:
    make, change, run = CASES[name]
    held = make()
    if isinstance(held, nn.Module):
        held.to(device)

    def step(x: Tensor) -> Tensor:
        return run(x, held)

    runner = graphed(step, admit_after=1)
    x = torch.tensor([-1.0, 2.0], device=device)
    for _ in range(3):
        before = runner(x)
    assert last(runner) is Outcome.REPLAYED
    change(held)
    after = runner(x)
    assert last(runner) is Outcome.RECORDED
    torch.testing.assert_close(after, step(x))
    assert not torch.equal(before, after)
    runner(x)
    assert last(runner) is Outcome.REPLAYED


def last(runner: Runner[..., Any]) -> Outcome:
    assert runner.last is not None
    return runner.last.outcome


def test_the_same_order_in_other_objects_is_no_change(device: torch.device) -> None:
    key = "scale of a layer"
    scales = {key: 2.0, "b": 3.0}
    runner = graphed(lambda x: folded(x, scales.values()), admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        runner(x)
    scales.pop("b")
    scales.pop(key)
    scales["".join(["scale of ", "a layer"])] = 2.0
    scales["b"] = 3.0
    for _ in range(2):
        runner(x)
        assert last(runner) is Outcome.REPLAYED


def test_the_change_is_told() -> None:
    scales = {"a": 1.0, "b": 2.0}
    watch = Watch(lambda: scales)
    turned(scales)
    change = watch.changed()
    assert change is not None
    assert (change.reason, change.text) == (
        Reason.ATTRIBUTE_CHANGED,
        "scales has other keys, or in another order",
    )
    watch.look_again()
    assert watch.changed() is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_function_that_turns_a_dict_is_not_recorded(
    kind: type[dict[str, float]], device: torch.device
) -> None:
    def step(x: Tensor) -> Tensor:
        turned(scales)
        return folded(x, scales.values())

    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    scales = kind({"a": 1.0, "b": 2.0, "c": 3.0})
    answers = []
    for _ in range(4):
        answers.append(runner(x))
        assert last(runner) is Outcome.EAGER
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
    scales = kind({"a": 1.0, "b": 2.0, "c": 3.0})
    for answer in answers:
        torch.testing.assert_close(answer, step(x))


KEYS: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ((1, 2), (True, 2)),
    (frozenset({1}), frozenset({1.0})),
    (((1,), "a"), ((1.0,), "a")),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("one", "other"), KEYS, ids=map(repr, KEYS))
def test_keys_of_an_argument_are_told_apart(one: Any, other: Any, device: torch.device) -> None:
    def step(given: dict[Any, Tensor]) -> dict[Any, Tensor]:
        return {key: value * 2 for key, value in given.items()}

    runner = graphed(step, admit_after=1)
    for key in (one, other, one, other):
        result = runner({key: torch.ones(2, device=device)})
        assert repr([*result]) == repr([key])
    assert last(runner) is Outcome.REPLAYED


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("one", "other"), KEYS, ids=map(repr, KEYS))
@pytest.mark.parametrize("kind", ["dict", "set"])
def test_keys_that_are_held_are_told_apart(
    kind: str, one: Any, other: Any, device: torch.device
) -> None:
    held: Any = {one: None} if kind == "dict" else {one}

    def step(x: Tensor) -> tuple[Tensor, str]:
        return x * 2, repr([*held])

    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        assert runner(x)[1] == repr([one])
    assert last(runner) is Outcome.REPLAYED
    if isinstance(held, dict):
        held[other] = held.pop(one)
    else:
        held.remove(one)
        held.add(other)
    assert runner(x)[1] == repr([other])
    assert last(runner) is Outcome.RECORDED


@pytest.mark.parametrize(("one", "other"), KEYS, ids=map(repr, KEYS))
def test_equal_keys_of_two_kinds(one: Any, other: Any) -> None:
    assert one == other
    assert not same_key(one, other)
    assert same_key(one, one)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_order_is_compared_without_a_compiler(kind: type[dict[str, int]]) -> None:
    held = kind(a=1, b=2)
    size = Size(held, "held")
    check = PlacesInPython((held, "a", 1), (held, size.now()))
    assert check.hold()
    turned(held)
    assert Place(held, "a", 1, "").now() == 1
    assert not check.hold()


def test_of_attributes_the_order_counts_where_all_of_them_may_be_read() -> None:
    held = {"a": 1, "b": 2}
    size = Size(held, "", frozenset(held))
    assert size.now() == 2
    assert size.now(orders_attributes=True) == ("a", "b")
