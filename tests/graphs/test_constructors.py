"""What is read while an object is made is watched, where the function makes one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, Self

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_replay
from ostinato.graphs import graphed
from ostinato.graphs.asked_about import only_asked_about
from ostinato.graphs.reach import reach


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.inference_mode():
        yield


held = SimpleNamespace(scale=2.0)
SCALE = 2.0


class Made:
    def __init__(self) -> None:
        self.scale = SCALE


class Below(Made):
    pass


class MadeByNew:
    scale: float

    def __new__(cls) -> Self:
        made = super().__new__(cls)
        made.scale = SCALE
        return made


@dataclasses.dataclass
class MadeAfter:
    scale: float = 0.0

    def __post_init__(self) -> None:
        self.scale = SCALE


@dataclasses.dataclass
class MadeByFactory:
    scale: float = dataclasses.field(default_factory=lambda: held.scale)


class MadeModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = SCALE

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Scaled:
    def __init__(self) -> None:
        self.scale = SCALE

    def __enter__(self) -> float:
        return self.scale

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        pass


class Raised(Exception):
    def __init__(self) -> None:
        self.scale = SCALE


class Meta(type):
    def __call__(cls) -> Any:
        made = super().__call__()
        made.scale = SCALE
        return made

    @property
    def shown(cls) -> float:
        return SCALE


class MadeByMeta(metaclass=Meta):
    scale: float


class Subscripted:
    scale = 2.0

    def __class_getitem__(cls, _: int) -> float:
        return SCALE


class Outer:
    Inner = Made

    @classmethod
    def make(cls) -> Any:
        return cls()

    def __init__(self) -> None:
        self.scale = SCALE


def raising(x: Tensor) -> Tensor:
    try:
        raise Raised
    except Raised as error:
        return x * error.scale


def entering(x: Tensor) -> Tensor:
    with Scaled() as scale:
        return x * scale


def factory() -> Any:
    return Made()


outer = SimpleNamespace(one=Outer())
KINDS = {"made": Made}

MAKING: dict[str, Callable[[Tensor], Tensor]] = {
    "__init__": lambda x: x * Made().scale,
    "of a base": lambda x: x * Below().scale,
    "__new__": lambda x: x * MadeByNew().scale,
    "__post_init__": lambda x: x * MadeAfter().scale,
    "default_factory": lambda x: x * MadeByFactory().scale,
    "module": lambda x: MadeModule()(x),  # type: ignore[no-any-return]
    "context manager": entering,
    "exception": raising,
    "factory": lambda x: x * factory().scale,
    "metaclass": lambda x: x * MadeByMeta().scale,
    "property of a metaclass": lambda x: x * MadeByMeta.shown,
    "__class_getitem__": lambda x: x * Subscripted[0],  # type: ignore[type-arg,operator]
    "within a class": lambda x: x * Outer.Inner().scale,
    "classmethod": lambda x: x * Outer.make().scale,
    "classmethod of an object": lambda x: x * outer.one.make().scale,
    "in a dict": lambda x: x * KINDS["made"]().scale,
}


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.parametrize("how", MAKING)
def test_a_change_of_what_a_constructor_reads_is_noticed(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2)
    run = graphed(MAKING[how], admit_after=1)
    run(x)
    check_replay(run, x)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    monkeypatch.setattr(held, "scale", 5.0)
    assert torch.equal(run(x), x * 5)
    check_replay(run, x)


elsewhere = ModuleType("elsewhere")
elsewhere.below = ModuleType("elsewhere.below")  # type: ignore[attr-defined]
CODE = """
K = 2.0
class Made:
    def __init__(self):
        self.scale = K
"""


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.parametrize(
    "step", [lambda x: x * elsewhere.below.Made().scale, lambda x: x * elsewhere.below.K]
)
def test_a_class_and_a_module_are_found_in_a_module(step: Callable[[Tensor], Tensor]) -> None:
    below = elsewhere.below
    exec(CODE, vars(below))
    x = torch.ones(2)
    run = graphed(step, admit_after=1)
    run(x)
    check_replay(run, x)
    below.K = 5.0
    assert torch.equal(run(x), x * 5)


class Loads(nn.Module):
    """Reads at its making what no run reads."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.start = held.scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_the_constructor_of_an_object_that_is_only_used_is_not_looked_into() -> None:
    module = Loads()
    found = reach(lambda x: module(x))
    assert "start" not in found.names
    assert not any("held" in place.name for place in found.places)


class Parent(nn.Module):
    def __init__(self) -> None:
        super(Parent, self).__init__()  # noqa: UP008 - as people write it
        self.start = held.scale

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Child(Parent):
    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, (Parent, Child)) or issubclass(type(x), Parent):
            return x
        try:
            return super(Child, self).forward(x)  # noqa: UP008 - likewise
        except Child:  # type: ignore[misc]
            return x


def test_the_constructor_of_a_class_that_is_only_asked_about_is_not_looked_into() -> None:
    assert only_asked_about(Child.forward.__code__) == {"Child", "Parent"}
    found = reach(Child())
    assert Parent in found.classes
    assert "start" not in found.names
    assert not any("held" in place.name for place in found.places)


ASKING: dict[str, tuple[set[str], Callable[[Any], Any]]] = {
    "isinstance": ({"Made"}, lambda x: isinstance(x, Made)),
    "also made": (set(), lambda x: isinstance(x, Made) and Made()),
    "first argument": ({"Below"}, lambda x: isinstance(Made(x), Below)),  # type: ignore[call-arg]
    "within a call": ({"Below"}, lambda x: isinstance(x.f(Made(), Made), Below)),
    "of another call": ({"Below"}, lambda x: x.f(isinstance(x, Below), Made)),
    "type of one": (set(), lambda x: isinstance(x, type(Made()))),
    "nested": ({"Made"}, lambda x: [isinstance(each, Made) for each in x]),
}


def puts_asking_away(x: Any, use: Any) -> Any:
    asking = isinstance
    return asking, use(x, Made)


def test_a_class_given_to_another_function_is_not_only_asked_about() -> None:
    assert only_asked_about(puts_asking_away.__code__) == frozenset()


@pytest.mark.parametrize("how", ASKING)
def test_a_class_that_is_only_asked_about_is_told_from_one_that_is_made(how: str) -> None:
    expected, code = ASKING[how]
    assert only_asked_about(code.__code__) == expected
