"""Arguments whose own methods raise when they are looked into: the call is answered."""

from __future__ import annotations

import types
from collections import UserDict
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
import torch
from torch import Tensor

from graphs.test_hostile_objects import THINGS, Boom, boom, kind, meta
from ostinato import Outcome, Reason, UsageError, graphed
from ostinato.graphs import Runner


def bare(thing: Any) -> Any:
    return thing


def inside(thing: Any) -> Any:
    return [{"a": thing}, types.SimpleNamespace(thing=(thing, 1)), UserDict(a=thing)]


def as_key(thing: Any) -> Any:
    return {thing: 1}


AS_KEY = ("object, __repr__", "object, __getattribute__", "object, property __class__",
          "tuple, __iter__", "enum", "metaclass of an object", "module, getattr",
          "tensor, torch function", "Python module, name", "mock")  # fmt: skip
FORMS = [
    *((how, name) for how in (bare, inside) for name in THINGS),
    *((as_key, name) for name in AS_KEY),
]


def step(x: Tensor, given: Any) -> Tensor:
    return x * 2


def answers(g: Runner[..., Any], given: Any, **keywords: Any) -> None:
    for value in range(2):
        x = torch.full((3,), float(value))
        assert torch.equal(g(x, given, **keywords), x * 2)
    str(g.last), str(g.report()), repr(g)


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.parametrize(("how", "name"), FORMS)
def test_an_argument_that_raises_when_it_is_looked_into_costs_no_answer(
    how: Callable[[Any], Any], name: str
) -> None:
    try:
        given = how(THINGS[name]())
    except Exception:  # noqa: BLE001 - no dict has such a key
        assert how is as_key
        return
    with graphed(step, admit_after=1, backend="tape") as g:
        answers(g, given)


class Hidden:
    @property
    def __class__(self) -> Any:
        raise Boom


class Loud(Enum):
    A = 1

    def __repr__(self) -> str:
        raise Boom


TOLD = {
    "__class__": (Hidden, "given, a Hidden, raises Boom when it is looked into"),
    "__class__ that is none": (
        lambda: kind(object, __class__=5)(), "given, a Hostileobject, raises TypeError when"
    ),
    "__hash__ of a class": (lambda: meta(__hash__=boom), "given, a Meta, raises Boom when"),
    "deep inside": (lambda: [{"a": Hidden()}], "given, a list, raises Boom when"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_the_reason_names_the_argument_its_class_and_what_it_raised(
    name: str, device: torch.device
) -> None:
    make, told = TOLD[name]
    g = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    for call in (lambda: g(x, make()), lambda: g(x, given=make()), lambda: g.warm(x, make())):
        call()
        assert g.last is not None
        assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.UNSUPPORTED_INPUT)
        assert told in g.last.detail
    with pytest.raises(UsageError, match="given, a"):
        graphed(step, admit_after=1, on_unfit="raise")(x, make())


def test_a_value_that_cannot_say_itself_is_no_obstacle(device: torch.device) -> None:
    g = graphed(step, admit_after=1)
    for _ in range(2):
        g(torch.ones(2, device=device), Loud.A)
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    assert "given=<Loud>" in g.report().graphs[0].signature


def test_what_no_argument_raises_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may raise while we look, and a defect of ours must not pass in silence."""
    g = graphed(step, admit_after=1, backend="tape")

    def interrupt(*args: Any) -> Any:
        raise TimeoutError("the alarm rang")

    monkeypatch.setattr(g._player, "_sign", interrupt)
    for call in (g, g.warm):
        with pytest.raises(TimeoutError, match="the alarm rang"):
            call(torch.ones(2), {"a": 1})


def test_an_error_of_the_function_does_not_tell_of_the_argument() -> None:
    def failing(x: Tensor, given: Any) -> Tensor:
        raise ValueError("no such head")

    g = graphed(failing, admit_after=1, backend="tape")
    with pytest.raises(ValueError, match="no such head") as caught:
        g(torch.ones(2), Hidden())
    assert caught.value.__context__ is None
