"""What a class reads is watched though its objects have no dict: slots, tuples, enums, numbers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome, Reason, graphed

GAIN = 2.0


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@dataclass(slots=True)
class Config:
    scale: float = 2.0

    @property
    def gain(self) -> float:
        return self.scale * 10


class Slotted:
    """Each special method and the one named answers with what lies in the slot."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 2

    def value(self) -> int:
        return self.n

    def act(self, x: Tensor) -> Tensor:
        return x * self.n

    __call__ = act
    __rmul__ = __mul__ = act

    def __getitem__(self, at: int) -> int:
        return self.n

    def __len__(self) -> int:
        return self.n

    def __float__(self) -> float:
        return float(self.n)

    def __enter__(self) -> int:
        return self.n

    def __exit__(self, *_: object) -> None:
        pass


def entered(x: Tensor, held: Any) -> Tensor:
    with held as number:
        return x * number


USES: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "a method": lambda x, held: x * held.value(),
    "a method that is given the tensor": lambda x, held: held.act(x),
    "a call": lambda x, held: held(x),
    "an item": lambda x, held: x * held[0],
    "a length": lambda x, held: x * len(held),
    "a number": lambda x, held: x * float(held),
    "an operator": lambda x, held: held * x,
    "a context": entered,
}


def check_noticed(runner: Any, fn: Any, change: Callable[[], object], *args: Any) -> None:
    """Have `change` drop the recording, and the next call answer as an eager one."""
    for _ in range(2):
        before = runner(*args)
    assert runner.last.outcome is Outcome.REPLAYED
    change()
    after = runner(*args)
    assert (runner.last.outcome, runner.last.reason) == (
        Outcome.RECORDED,
        Reason.ATTRIBUTE_CHANGED,
    )
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, fn(*args))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("is_given", [False, True], ids=["closed-over", "given"])
def test_a_slot_that_a_method_reads(use: str, is_given: bool, device: torch.device) -> None:
    held = Slotted()
    run = USES[use]
    step: Callable[..., Tensor] = run if is_given else lambda x: run(x, held)
    given = (held,) if is_given else ()
    x = torch.ones(2, device=device)
    runner = graphed(step, admit_after=1)
    check_noticed(runner, step, lambda: setattr(held, "n", 5), x, *given)


@pytest.mark.filterwarnings("ignore")
def test_a_slot_that_a_property_of_a_configuration_reads(device: torch.device) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = Config()

        def forward(self, x: Tensor) -> Tensor:
            return x * self.config.gain

    net = Net()
    runner = graphed(net, admit_after=1)
    x = torch.ones(2, device=device)
    check_noticed(runner, net, lambda: setattr(net.config, "scale", 5.0), x)


@pytest.mark.filterwarnings("ignore")
def test_a_callable_with_slots(device: torch.device) -> None:
    held = Slotted()
    x = torch.ones(2, device=device)
    check_noticed(graphed(held, admit_after=1), held, lambda: setattr(held, "n", 5), x)


class Bare:
    __slots__ = ()

    def go(self, x: Tensor) -> Tensor:
        return x * GAIN


class Pair(NamedTuple):
    a: Any

    def go(self, x: Tensor) -> Tensor:
        return x * GAIN


class Mode(enum.Enum):
    A = 1

    def go(self, x: Tensor) -> Tensor:
        return x * GAIN


class Number(int):
    __slots__ = ()

    def go(self, x: Tensor) -> Tensor:
        return x * GAIN


@dataclass
class Batch:
    a: Any

    def go(self, x: Tensor) -> Tensor:
        return x * GAIN


class Made:
    @classmethod
    def go(cls, x: Tensor) -> Tensor:
        return x * GAIN


OBJECTS: dict[str, Any] = {
    "an object without attributes": Bare(),
    "a named tuple": Pair(1),
    "a member of an enum": Mode.A,
    "a kind of number": Number(3),
    "a dataclass": Batch(1),
    "a class": Made,
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "alone": lambda each: each,
    "in a list": lambda each: [each],
    "in a dict": lambda each: {"held": each},
    "as a key": lambda each: {each: 0},
    "in a key": lambda each: {(each, 1): 0},
    "in a frozenset": lambda each: frozenset({each}),
}


def find(held: Any) -> Any:
    while isinstance(held, list | dict | frozenset) or type(held) is tuple:
        is_value = type(held) is dict and held.get("held") is not None
        held = held["held"] if is_value else next(iter(held))
    return held


def going(x: Tensor, one: Any) -> Tensor:
    result: Tensor = find(one).go(x)
    return result


CASES = [
    (what, where)
    for what in OBJECTS
    for where in PLACES
    if what != "a dataclass" or where in ("alone", "in a list", "in a dict")
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("what", "where"), CASES)
@pytest.mark.parametrize("is_given", [False, True], ids=["closed-over", "given"])
def test_a_global_that_a_method_of_its_class_reads(
    what: str, where: str, is_given: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = PLACES[where](OBJECTS[what])

    step: Callable[..., Tensor] = going if is_given else lambda x: going(x, held)
    x = torch.ones(2, device=device)
    given = (held,) if is_given else ()
    change = lambda: monkeypatch.setitem(globals(), "GAIN", 7.0)  # noqa: E731
    check_noticed(graphed(step, admit_after=1), step, change, x, *given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", OBJECTS)
def test_a_method_of_its_class_that_is_exchanged(
    what: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(x: Tensor, one: Any) -> Tensor:
        return one.go(x)

    held = OBJECTS[what]
    kind = held if isinstance(held, type) else type(held)
    other = lambda _, x: x * 9.0  # noqa: E731
    change = lambda: monkeypatch.setattr(  # noqa: E731
        kind, "go", classmethod(other) if kind is Made else other
    )
    runner = graphed(step, admit_after=1)
    check_noticed(runner, step, change, torch.ones(2, device=device), held)


@pytest.mark.filterwarnings("ignore")
def test_a_value_of_the_class_of_an_argument(device: torch.device) -> None:
    @dataclass
    class Scaled:
        a: Tensor
        # No annotation: a value of the class, and no field.
        by = 2.0

    def step(given: Scaled) -> Tensor:
        return given.a * given.by

    given = Scaled(torch.ones(2, device=device))
    runner = graphed(step, admit_after=1)
    check_noticed(runner, step, lambda: setattr(Scaled, "by", 5.0), given)
    runner(replace(given))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
