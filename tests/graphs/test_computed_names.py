"""What code finds by a name that does not stand in it is watched as what it names."""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter, methodcaller
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_replay
from ostinato.graphs import Outcome, Reason, graphed
from ostinato.graphs.computed_names import (
    composed,
    computes_globals,
    computes_names,
    names_asked_by,
    parts_of_names,
)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


# Which code computes a name. `s` is some object, `n` whatever.


def imports_getter(s: Any, n: Any) -> Any:
    from operator import attrgetter as by_name

    return by_name(n)(s)


def imports_getattr(s: Any, n: Any) -> Any:
    from builtins import getattr as find

    return find(s, n)


def puts_away(s: Any, n: Any) -> Any:
    find = getattr
    n("a", "b")
    return find(s, n)


def reads_in_a_class(s: Any, n: Any) -> Any:
    class Inner:
        value = getattr(s, n)

    return Inner.value


COMPUTING: dict[str, Callable[[Any, Any], Any]] = {
    "f-string": lambda s, n: getattr(s, f"a{n}"),
    "variable": lambda s, n: getattr(s, n),
    "sum": lambda s, n: getattr(s, "a" + n, None),
    "percent": lambda s, n: getattr(s, "w_%d" % n),  # noqa: UP031 - as people write it
    "format": lambda s, n: getattr(s, "w{}".format(n), 1.0),  # noqa: UP032 - likewise
    "str": lambda s, n: getattr(s, str(n)),
    "either": lambda s, n: getattr(s, "a" if n else "b"),
    "or": lambda s, n: getattr(s, n or "a", 3),
    "subscript": lambda s, n: getattr(s, ("a", "b")[n]),
    "starred": lambda _, n: getattr(*n),
    "passed on": lambda s, n: map(getattr, s, n),
    "partial": lambda s, n: functools.partial(getattr, s)(n),
    "second of two": lambda s, n: getattr(s, "a", 1) + getattr(s, n, 1),
    "outer of two": lambda s, n: getattr(getattr(s, "a"), n),  # noqa: B009 - likewise
    "comprehension": lambda s, n: [getattr(s, each) for each in n],
    "nested": lambda s, n: (lambda: getattr(s, n))(),
    "hasattr": lambda s, n: hasattr(s, n),
    "vars": lambda s, _: vars(s)["a"],
    "__dict__": lambda s, _: s.__dict__["a"],
    "attrgetter": lambda s, n: operator.attrgetter(n)(s),
    "attrgetter of a path": lambda s, _: attrgetter("a.b")(s),
    "attrgetter of two": lambda s, n: attrgetter("a", n)(s),
    "methodcaller": lambda s, n: methodcaller(n, "x")(s),
    "imported attrgetter": imports_getter,
    "imported getattr": imports_getattr,
    "put away": puts_away,
    "in a class": reads_in_a_class,
    "state": lambda s, _: s.__getstate__()["a"],
    "reduced": lambda s, _: s.__reduce_ex__(2)[2]["a"],
    "eval": lambda s, n: eval("s.n"),
    "globals": lambda s, n: globals()["a"],
}
NAMING: dict[str, Callable[[Any, Any], Any]] = {
    "constant": lambda s, _: getattr(s, "a"),  # noqa: B009 - likewise
    "default": lambda s, n: getattr(s, "a", n.x(1, 2) + 3),
    "of a call": lambda s, n: getattr(s.b(n, k=1), "a", None),
    "hasattr": lambda s, n: hasattr(s[0], "a") and getattr(s, "b", None)(n),
    "default is another": lambda s, n: getattr(s, "a", getattr(n, "c", 1)),
    "attrgetter": lambda s, _: operator.attrgetter("a")(s),
    "methodcaller": lambda s, n: methodcaller("a", n)(s),
    "a method called eval": lambda s, n: s.eval() + n,
    "an attribute called getattr": lambda s, n: s.getattr + n,
}


@pytest.mark.parametrize("how", COMPUTING)
def test_a_name_that_does_not_stand_in_the_code_is_told_from_one_that_does(how: str) -> None:
    assert computes_names(COMPUTING[how].__code__)


@pytest.mark.parametrize("how", NAMING)
def test_a_name_that_stands_in_the_code_is_no_computed_one(how: str) -> None:
    assert not computes_names(NAMING[how].__code__)


class PassesOn:
    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Renames:
    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, "_" + name)


def test_a_getattr_that_passes_its_name_on_computes_none() -> None:
    assert not computes_names(PassesOn.__getattr__.__code__)
    assert computes_names(Renames.__getattr__.__code__)


def test_only_eval_and_its_like_read_any_global() -> None:
    assert computes_globals(COMPUTING["eval"].__code__)
    assert computes_globals(COMPUTING["globals"].__code__)
    assert not computes_globals(COMPUTING["variable"].__code__)
    assert not computes_globals(NAMING["a method called eval"].__code__)


def test_a_getter_says_what_it_asks_for() -> None:
    assert names_asked_by(attrgetter("a.b", "c")) == {"a", "b", "c"}
    assert names_asked_by(methodcaller("run", 1)) == {"run"}
    assert names_asked_by(methodcaller("run", 1, by=2)) == {"run"}
    assert names_asked_by(print) == frozenset()


def test_a_name_is_composed_of_words_that_stand_somewhere() -> None:
    parts = parts_of_names(COMPUTING["percent"].__code__)
    assert parts == {"w_"}
    assert composed(["w_1", "other", "fast", "__init__"], {"fast"}, parts) == {"w_1", "fast"}


# What happens to a recording.


class Computing(nn.Module):
    """Finds what it multiplies with by a name that it makes."""

    in_class_1 = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.number = 1
        self.name = "scale_1"
        self.names = ("scale_1",)
        self.scale_1 = 2.0
        self.other = SimpleNamespace(scale_1=2.0)
        self.slotted = Slotted(2.0)
        self.counted = 0  # no run reads it

    def by_f_string(self, x: Tensor) -> Tensor:
        return x * getattr(self, f"scale_{self.number}")

    def by_attribute(self, x: Tensor) -> Tensor:
        return x * getattr(self, self.name)

    def by_tuple(self, x: Tensor) -> Tensor:
        for name in self.names:
            x = x * getattr(self, name)
        return x

    def by_path(self, x: Tensor) -> Tensor:
        return x * attrgetter("other.scale_1")(self)

    def by_vars(self, x: Tensor) -> Tensor:
        return x * vars(self)[self.name]

    def by_dict(self, x: Tensor) -> Tensor:
        return x * self.__dict__[self.name]

    def of_another(self, x: Tensor) -> Tensor:
        return x * getattr(self.other, self.name)

    def of_slots(self, x: Tensor) -> Tensor:
        return x * getattr(self.slotted, self.name)

    def of_class(self, x: Tensor) -> Tensor:
        return x * getattr(self, f"in_class_{self.number}")

    def of_module(self, x: Tensor) -> Tensor:
        return x * getattr(HERE, f"SCALE_{self.number}")

    def by_globals(self, x: Tensor) -> Tensor:
        return x * globals()[self.name.upper()]

    def by_eval(self, x: Tensor) -> Tensor:
        return x * eval("SCALE_1")

    def by_another_name(self, x: Tensor) -> Tensor:
        return x * look_up(self, self.name)

    def by_getter(self, x: Tensor) -> Tensor:
        return x * GETTER(self)

    def run_1(self, x: Tensor) -> Tensor:
        return x * SCALE_OF_METHOD

    def by_method(self, x: Tensor) -> Tensor:
        return getattr(self, f"run_{self.number}")(x)

    @property
    def shown_1(self) -> float:
        return SCALE_OF_METHOD

    def by_property(self, x: Tensor) -> Tensor:
        return x * getattr(self, f"shown_{self.number}")


@dataclasses.dataclass(slots=True)
class Slotted:
    scale_1: float


SCALE_1 = 2.0
SCALE_OF_METHOD = 2.0
HERE = sys.modules[__name__]
GETTER = attrgetter("scale_1")
look_up = getattr


def _change(module: Computing, how: str) -> Callable[[], None]:
    """Change what a method reads; return how to put it back."""
    if how == "of_class":
        Computing.in_class_1 = 5.0
        return lambda: setattr(Computing, "in_class_1", 2.0)
    if how in ("of_module", "by_globals", "by_eval"):
        HERE.SCALE_1 = 5.0
        return lambda: setattr(HERE, "SCALE_1", 2.0)
    if how in ("by_method", "by_property"):
        HERE.SCALE_OF_METHOD = 5.0
        return lambda: setattr(HERE, "SCALE_OF_METHOD", 2.0)
    held = {"of_another": module.other, "by_path": module.other, "of_slots": module.slotted}
    setattr(held.get(how, module), "scale_1", 5.0)  # noqa: B010 - of several types
    return lambda: None


@pytest.mark.parametrize(
    "how", [name for name in vars(Computing) if name.startswith(("by_", "of_"))]
)
@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
def test_a_change_of_what_a_computed_name_finds_is_noticed(how: str, device: torch.device) -> None:
    module, x = Computing(), torch.ones(2, device=device)
    runner = graphed(getattr(module, how), admit_after=1)
    runner(x)
    check_replay(runner, x)
    put_back = _change(module, how)
    try:
        assert torch.equal(runner(x), x * 5)
        assert runner.last is not None
        assert runner.last.reason is Reason.ATTRIBUTE_CHANGED
        check_replay(runner, x)
    finally:
        put_back()


def test_a_model_that_names_all_it_reads_may_have_any_other_attribute_changed(
    device: torch.device,
) -> None:
    class Named(Computing):
        def forward(self, x: Tensor) -> Tensor:
            return x * getattr(self, "scale_1", 1.0)

    module, x = Named(), torch.ones(2, device=device)
    runner = graphed(module, admit_after=1)
    runner(x)
    module.counted += 1
    runner(x)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_an_attribute_of_a_tensor_that_may_be_read_by_a_computed_name_is_refused(
    device: torch.device,
) -> None:
    name = "gain"
    runner = graphed(lambda x: x * getattr(x, name), admit_after=1)
    x = torch.ones(2, device=device)
    x.gain = 3.0  # type: ignore[attr-defined]
    for _ in range(3):
        assert torch.equal(runner(x), x * 3)
    assert runner.last is not None
    assert runner.last.reason is Reason.UNSUPPORTED_INPUT
