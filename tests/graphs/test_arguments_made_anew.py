"""Arguments that each call makes anew are opened or compared by value, or told of."""

from __future__ import annotations

import argparse
import datetime
import decimal
import fractions
import pathlib
import re
import types
from collections import ChainMap, UserDict, UserList
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, nn
from transformers import BatchEncoding, BatchFeature

from graphs.replaying import check_eager, check_replay, record, spoil
from ostinato import Outcome, Reason, graphed
from ostinato.graphs import OstinatoWarning


class Space(types.SimpleNamespace):
    def total(self) -> Tensor:
        return self.x + self.y


class Tagged(UserDict[str, Tensor]):
    def __init__(self, entries: Any, tag: str) -> None:
        super().__init__(entries)
        self.tag = tag


class Entries(dict[str, Any]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("a rebuilt value is one that existed")

    @classmethod
    def of(cls, **entries: Any) -> Entries:
        made = cls.__new__(cls)
        dict.update(made, entries)
        made.scale = 3.0
        return made

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key.lower())

    def __iter__(self) -> Iterator[str]:
        return iter([key.upper() for key in super().__iter__()])


class Named(dict[str, Any]):
    """The old idiom: its entries are its attributes."""

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        self.__dict__ = self


class Series(list[Tensor]):
    scale = 2.0


@attrs.define
class Slotted:
    x: Tensor
    y: Tensor
    _scale: float = 2.0

    def total(self) -> Tensor:
        return self.x * self._scale + self.y


@attrs.frozen(slots=False)
class Frozen:
    x: Tensor
    more: Any


def named(d: Any) -> Tensor:
    return d["x"] * 2 - d["y"]


def attributes(d: Any) -> Tensor:
    return d.x * 2 - d.y


STRUCTURES: dict[str, tuple[Callable[[Any], Any], Callable[[Tensor, Tensor], Any]]] = {
    "batch encoding": (named, lambda x, y: BatchEncoding({"x": x, "y": y})),
    "batch encoding, attributes": (attributes, lambda x, y: BatchEncoding({"x": x, "y": y})),
    "batch encoding, keywords": (
        lambda d: (lambda x, y: x - y)(**d), lambda x, y: BatchEncoding({"x": x, "y": y})
    ),
    "batch feature": (named, lambda x, y: BatchFeature({"x": x, "y": y})),
    "user dict": (named, lambda x, y: UserDict({"x": x, "y": y})),
    "user dict, tagged": (
        lambda d: d["x"] * len(d.tag) - d["y"], lambda x, y: Tagged({"x": x, "y": y}, "abc")
    ),
    "user list": (lambda d: d[0] * 2 - d[1], lambda x, y: UserList([x, y])),
    "chain map": (named, lambda x, y: ChainMap({"x": x}, {"y": y})),
    "namespace": (attributes, lambda x, y: types.SimpleNamespace(x=x, y=y, more=[1, None])),
    "namespace, a user's": (lambda d: d.total(), lambda x, y: Space(x=x, y=y)),
    "arguments": (attributes, lambda x, y: argparse.Namespace(x=x, y=y)),
    "dict, a user's": (
        lambda d: d["X"] * d.scale - d["Y"] * len([*d]), lambda x, y: Entries.of(x=x, y=y)
    ),
    "dict of its attributes": (lambda d: d.x * 2 - d["y"], lambda x, y: Named(x=x, y=y)),
    "list, a user's": (lambda d: d[0] * d.scale - d[1], lambda x, y: Series([x, y])),
    "attrs": (lambda d: d.total(), lambda x, y: Slotted(x, y)),
    "attrs, frozen": (lambda d: d.x - d.more["y"], lambda x, y: Frozen(x, {"y": y})),
    "nested": (
        lambda d: d[0].x.data["y"] * 2, lambda x, y: [types.SimpleNamespace(x=UserDict(y=y))]
    ),
}  # fmt: skip


def check_replays(
    fn: Callable[[Any], Any], make: Callable[[Tensor, Tensor], Any], device: torch.device
) -> None:
    """Make an argument for each of three calls; the last two must be replayed, and right."""
    # Not by `check_replay`: copies of some of these lack what their originals have.
    g = graphed(fn, admit_after=1)
    for n in range(3):
        x, y = torch.randn(2, 3, device=device), torch.randn(2, 3, device=device)
        wanted = fn(make(x.clone(), y.clone()))
        spoil(g)
        torch.testing.assert_close(g(make(x, y)), wanted)
        assert g.last is not None
        assert g.last.outcome is (Outcome.REPLAYED if n else Outcome.RECORDED), g.last


@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_container_made_anew_is_opened(kind: str, device: torch.device) -> None:
    check_replays(*STRUCTURES[kind], device)


@pytest.mark.parametrize("kind", STRUCTURES)
def test_one_that_is_returned_is_made_anew_for_the_caller(kind: str, device: torch.device) -> None:
    _, make = STRUCTURES[kind]

    def step(x: Tensor) -> Any:
        return make(x * 2, x + 1)

    g = record(step, torch.ones(2, 3, device=device))
    one = check_replay(g, torch.randn(2, 3, device=device))
    other = check_replay(g, torch.randn(2, 3, device=device))
    assert one is not other
    assert type(one) is type(other)


def recorded_twice(device: torch.device, one: Any, other: Any) -> bool:
    """Whether two values of one argument make two recordings."""
    g = graphed(lambda x, value: x * 2, admit_after=1)
    for value in (one, other, one):
        g(torch.ones(2, device=device), value)
    return g.report().recordings == 2


ZONE = datetime.timezone(datetime.timedelta(hours=1))
VALUES: dict[str, tuple[Callable[[], Any], Any]] = {
    "path": (lambda: pathlib.Path("a/b"), pathlib.Path("a/c")),
    "pure path": (lambda: pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("a")),
    "date": (lambda: datetime.date(2020, 1, 3), datetime.date(2020, 1, 4)),
    "time": (lambda: datetime.time(3, 4), datetime.time(3, 4, fold=1)),
    "moment": (
        lambda: datetime.datetime(2020, 1, 3, 12, tzinfo=datetime.UTC),
        datetime.datetime(2020, 1, 3, 13, tzinfo=ZONE),
    ),
    "duration": (lambda: datetime.timedelta(1), datetime.timedelta(2)),
    "zone": (lambda: datetime.timezone(datetime.timedelta(hours=1)), datetime.UTC),
    "decimal": (lambda: decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    "fraction": (lambda: fractions.Fraction(1, 3), fractions.Fraction(1, 2)),
    "pattern": (lambda: re.compile("a+"), re.compile("a+", re.IGNORECASE)),
    "alias": (lambda: dict[str, int], dict[str, float]),
    "set": (lambda: {"a", "b", ("c", 1)}, {"a", "b"}),
    "set of numbers": (lambda: {1, 2}, {1.0, 2}),
    "set in another order": (lambda: {8, 0}, {0, 8}),
    "set in a list": (lambda: [{"a"}], [{"b"}]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_made_anew_is_compared_by_what_it_is(kind: str, device: torch.device) -> None:
    make, other = VALUES[kind]
    assert not recorded_twice(device, make(), make())
    assert recorded_twice(device, make(), other)


def test_a_value_in_a_container_is_part_of_the_key(device: torch.device) -> None:
    g = graphed(lambda d: d.x * d.scale, admit_after=1)
    x = torch.ones(2, device=device)
    for scale in (2.0, 3.0, 2.0):
        assert g(types.SimpleNamespace(x=x, scale=scale)).tolist() == [scale] * 2
    assert g.report().recordings == 2


def test_a_set_that_is_walked_through_keeps_its_order(device: torch.device) -> None:
    def step(x: Tensor, numbers: set[int]) -> Tensor:
        for number in numbers:
            x = x * 2 + number
        return x

    once_large = {1, 8, *range(100, 200)}
    once_large.difference_update(range(100, 200))  # its order is none of a new set of its items
    g = graphed(step, admit_after=1)
    for numbers in ({0, 8}, {8, 0}, {1, 8}, once_large, {1, 8}, {0, 8}):
        x = torch.ones(2, device=device)
        assert torch.equal(g(x, numbers), step(x, numbers))


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda x: types.SimpleNamespace(x=x), lambda d: setattr(d, "seen", 1)),
        (lambda x: UserDict(x=x), lambda d: d.update(seen=1)),
        (lambda x: Entries.of(x=x), lambda d: d.update(seen=1)),
        (lambda x: Series([x]), lambda d: d.append(x_of(d))),
        (lambda x: Slotted(x, x), lambda d: setattr(d, "y", d.x * 2)),
        (lambda x: [x, {"a"}], lambda d: d[1].add("b")),
    ],
    ids=["namespace", "user dict", "dict", "list", "attrs", "set"],
)
@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
def test_what_the_function_changes_in_it_is_changed_for_the_caller(
    make: Callable[[Tensor], Any], change: Callable[[Any], Any], device: torch.device
) -> None:
    def step(d: Any) -> Tensor:
        change(d)
        return x_of(d) * 2

    g = graphed(step, admit_after=1)
    for _ in range(3):
        check_eager(g, Reason.PYTHON_SIDE_EFFECT, make(torch.randn(2, device=device)))


def x_of(d: Any) -> Tensor:
    if isinstance(d, list):
        return d[0]
    return d["x"] if isinstance(d, dict | UserDict) else d.x


# What a tokenizer keeps beside the tensors.


class Encoding:
    """As a tokenizer makes one for each text."""

    word_ids = (0, 1)
    n_sequences = 1


def encoded(x: Tensor, y: Tensor) -> BatchEncoding:
    encoding = BatchEncoding({"x": x, "y": y})
    encoding._encodings = [Encoding()]
    encoding._n_sequences = 1
    return encoding


def test_what_a_tokenizer_found_in_a_text_is_no_obstacle(device: torch.device) -> None:
    check_replays(named, encoded, device)


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda d: d["x"] * len(d.word_ids(0)), Reason.CAPTURE_ERROR),
        (lambda d: d["x"] * len(d.encodings), Reason.UNSUPPORTED_INPUT),
        (lambda d: d["x"] * (2 if d.is_fast else 3), Reason.UNSUPPORTED_INPUT),
        (lambda d: BatchEncoding({"x": d["x"]}, d.encodings), Reason.UNSUPPORTED_INPUT),
    ],
)
def test_code_that_asks_for_it_runs_eagerly(
    fn: Callable[[Any], Any], reason: Reason, device: torch.device
) -> None:
    g = graphed(fn)
    for _ in range(3):
        x = torch.randn(2, 3, device=device)
        result, wanted = g(encoded(x, x)), fn(encoded(x, x))
        if isinstance(wanted, BatchEncoding):
            assert result.is_fast
            result, wanted = result["x"], wanted["x"]
        assert torch.equal(result, wanted)
    assert reason.value in g.report().reasons, g.report().reasons
    assert g.report().recordings == 0


def test_a_result_with_what_a_tokenizer_found_is_refused(device: torch.device) -> None:
    found = [Encoding()]
    g = graphed(lambda x: BatchEncoding({"x": x * 2}, found), admit_after=1)
    for _ in range(2):
        assert g(torch.ones(2, device=device))._encodings is found
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.UNSUPPORTED_OUTPUT)


# Objects that cannot be looked into.


class Plain:
    def __init__(self, x: Tensor) -> None:
        self.x = x


@pytest.mark.parametrize("admit_after", [1, 2])
def test_an_object_made_anew_is_told_of_with_its_path_and_class(
    admit_after: int, device: torch.device
) -> None:
    g = graphed(lambda d, n: d["batch"].x * n, admit_after=admit_after, on_unfit="raise")
    for n in range(12):
        x = torch.full((2,), float(n), device=device)
        assert torch.equal(g({"batch": Plain(x)}, 2), x * 2)
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.NEW_OBJECT)
    assert g.last.detail.startswith("d.batch is another Plain in each call, and")
    assert g.report().recordings <= 8  # and not one for each call


def test_only_what_is_new_is_named(device: torch.device) -> None:
    kept = Plain(torch.ones(2, device=device))
    g = graphed(lambda x, kept, new: new.x + kept.x + x)
    for _ in range(9):
        x = torch.ones(2, device=device)
        assert g(x, kept, Plain(x)).tolist() == [3.0, 3.0]
    assert g.last is not None
    assert g.last.detail.startswith("new is another Plain in each call")


def test_objects_that_come_again_are_recorded(device: torch.device) -> None:
    kept = [Plain(torch.full((2,), float(n), device=device)) for n in range(9)]
    g = graphed(lambda x, each: each.x + x)
    for _ in range(3):
        for n, each in enumerate(kept):
            assert g(torch.ones(2, device=device), each).tolist() == [n + 1.0] * 2
            assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    assert g.report().recordings == 9
    g(torch.ones(2, device=device), Plain(torch.ones(2, device=device)))
    assert g.last is not None
    assert g.last.reason is Reason.NOT_ADMITTED_YET  # it may come again, as the others did


def test_a_method_is_known_by_its_object(device: torch.device) -> None:
    class Act:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __call__(self, x: Tensor) -> Tensor:
            return self.run(x)

        def run(self, x: Tensor) -> Tensor:
            return x * self.scale

        def other(self, x: Tensor) -> Tensor:
            return x - self.scale

    one, two = Act(2.0), Act(3.0)
    g = graphed(lambda x, act: act(x), admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        assert g(x, one.run).tolist() == [2.0, 2.0]
        assert g(x, two.run).tolist() == [3.0, 3.0]
        assert g(x, one.other).tolist() == [-1.0, -1.0]
    assert g.report().recordings == 3
    assert g.report().replays == 3
    one.scale = 5.0
    with pytest.warns(OstinatoWarning, match="changed from 2.0 to 5.0"):
        assert g(x, one.run).tolist() == [5.0, 5.0]


def test_a_module_that_is_a_dataclass_is_no_container(device: torch.device) -> None:
    @dataclass(eq=False)
    class Scale(nn.Module):
        size: int

        def __post_init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(self.size, device=device), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    module = Scale(2)
    g = graphed(lambda x, module: module(x), admit_after=1)
    x = torch.ones(2, device=device)
    assert g(x, module).tolist() == [1.0, 1.0]
    module.weight.fill_(3.0)
    assert g(x, module).tolist() == [3.0, 3.0]
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    [graph] = g._store.graphs()
    assert len(graph.inputs.tensors) == 1  # its weight is read where it lies


# The word for what changed.


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.parametrize("is_held", [False, True])
def test_a_tensor_of_an_argument_is_no_weight_unless_the_function_holds_it_too(
    is_held: bool, device: torch.device
) -> None:
    state = Plain(torch.ones(2, device=device))
    held = state if is_held else None
    g = graphed(lambda x, s: x + s.x if held is s or held is None else x, admit_after=1)
    x = torch.ones(2, device=device)
    g(x, state)
    state.x = torch.zeros(2, device=device)
    assert g(x, state).tolist() == [1.0, 1.0]
    assert g.last is not None
    wanted = Reason.WEIGHTS_MOVED if is_held else Reason.ATTRIBUTE_CHANGED
    assert (g.last.outcome, g.last.reason) == (Outcome.RECORDED, wanted)


def test_a_weight_of_a_module_that_is_an_argument_is_one(device: torch.device) -> None:
    module = nn.Linear(2, 2, device=device).requires_grad_(False)
    g = graphed(lambda x, m: m(x), admit_after=1)
    x = torch.ones(2, device=device)
    g(x, module)
    module.weight = nn.Parameter(torch.zeros(2, 2, device=device), requires_grad=False)
    assert torch.equal(g(x, module), module.bias)
    assert g.last is not None
    assert g.last.reason is Reason.WEIGHTS_MOVED


def test_an_attribute_of_the_name_of_a_global_reads_none(device: torch.device) -> None:
    scope: dict[str, Any] = {"__name__": "users", "x": torch.ones(2, device=device)}
    exec("def step(d):\n    return d.x * 2\n", scope)
    g = graphed(scope["step"], admit_after=1)
    for n in range(3):
        scope["x"] = torch.full((2,), float(n), device=device)
        assert g(types.SimpleNamespace(x=scope["x"])).tolist() == [n * 2.0] * 2
    assert g.report().replays == 2
