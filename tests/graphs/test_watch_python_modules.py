"""What lies in a user's own Python module is compared by what it is, whoever made it.

A function of torch or of Python, a class and another module are exchanged like any value:
`cfg.ACT = torch.relu`.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody imports it

from ostinato.graphs import Outcome, Reason, Runner, graphed
from ostinato.graphs.reach import reach

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")

settings = types.ModuleType("settings_of_a_user")
X = torch.tensor([-1.0, 0.5])


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    before = dict(vars(settings))
    yield
    vars(settings).clear()
    vars(settings).update(before)


def check_noticed(runner: Runner[..., Any], change: Callable[[], object], told: str) -> None:
    """Insist that the call after a change is right, and that it says what was changed."""
    runner(X)
    runner(X)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED, runner.last
    before = runner(X).clone()
    change()
    expected = runner.fn(X)
    assert not torch.equal(expected, before), "the change changes nothing"
    torch.testing.assert_close(runner(X), expected)
    assert told in runner.report().details["attribute-changed"]
    runner(X)
    assert runner.last.outcome is Outcome.REPLAYED, runner.last


def _of(name: str, **held: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(held)
    return module


class Doubles:
    def of(self, x: Tensor) -> Tensor:
        return x * 2


class Triples:
    def of(self, x: Tensor) -> Tensor:
        return x * 3


CALLED: dict[str, tuple[Callable[[Any, Tensor], Tensor], Any, Any]] = {
    "builtin of torch": (lambda held, x: held(x), torch.relu, torch.sigmoid),
    "function of torch": (lambda held, x: held(x), F.relu, F.elu),
    "builtin of math": (lambda held, x: x * held(1.0), math.sin, math.cos),
    "builtin": (lambda held, x: held(x), abs, torch.exp),
    "class of torch": (lambda held, x: held()(x), nn.ReLU, nn.Tanh),
    "class of the user": (lambda held, x: held().of(x), Doubles, Triples),
    "module of torch": (lambda held, x: held.relu(x), F, _of("mine", relu=torch.exp)),
    "module of the user": (
        lambda held, x: held.fn(x), _of("a", fn=torch.sin), _of("b", fn=torch.cos)
    ),
}  # fmt: skip
kinds = pytest.mark.parametrize(("use", "one", "other"), CALLED.values(), ids=list(CALLED))


@kinds
def test_what_a_module_holds_is_compared(use: Any, one: Any, other: Any) -> None:
    settings.PART = one  # type: ignore[attr-defined]
    runner = graphed(lambda x: use(settings.PART, x), admit_after=1)
    change = lambda: setattr(settings, "PART", other)  # noqa: E731 - one assignment
    check_noticed(runner, change, "settings_of_a_user.PART was replaced")


@kinds
def test_what_a_part_of_a_module_holds_is_compared(use: Any, one: Any, other: Any) -> None:
    settings.below = _of("settings_of_a_user.below", PART=one)  # type: ignore[attr-defined]
    runner = graphed(lambda x: use(settings.below.PART, x), admit_after=1)
    change = lambda: setattr(settings.below, "PART", other)  # noqa: E731 - one assignment
    check_noticed(runner, change, "settings_of_a_user.below.PART was replaced")


@kinds
def test_what_is_imported_within_the_run_is_compared(use: Any, one: Any, other: Any) -> None:
    settings.PART = one  # type: ignore[attr-defined]

    def step(x: Tensor) -> Tensor:
        from settings_of_a_user import PART  # type: ignore[import-not-found]

        return use(PART, x)  # type: ignore[no-any-return]

    check_noticed(graphed(step, admit_after=1), lambda: setattr(settings, "PART", other), "PART")


@kinds
def test_what_is_found_by_a_name_that_the_code_makes_is_compared(
    use: Any, one: Any, other: Any
) -> None:
    settings.PART_1 = one  # type: ignore[attr-defined]
    runner = graphed(lambda x: use(getattr(settings, f"PART_{len(x) - 1}"), x), admit_after=1)
    check_noticed(runner, lambda: setattr(settings, "PART_1", other), "PART_1 was replaced")


@kinds
def test_what_is_found_among_the_entries_is_compared(use: Any, one: Any, other: Any) -> None:
    settings.odd = one  # type: ignore[attr-defined]
    runner = graphed(lambda x: use(vars(settings)["o" + "d" * len(x)], x), admit_after=1)
    check_noticed(runner, lambda: setattr(settings, "odd", other), "odd was replaced")


HELD: Any = None


def _by_global(x: Tensor) -> Tensor:
    return USE(HELD, x)


USE: Callable[[Any, Tensor], Tensor] = CALLED["builtin"][0]


@kinds
def test_what_a_global_holds_is_compared(
    use: Any, one: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "USE", use)
    monkeypatch.setitem(globals(), "HELD", one)
    runner = graphed(_by_global, admit_after=1)
    check_noticed(runner, lambda: monkeypatch.setitem(globals(), "HELD", other), "HELD (a global)")


def test_a_class_that_the_code_only_asks_about_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "HELD", Tensor)

    def step(x: Tensor) -> Tensor:
        return x * 2 if isinstance(x, HELD) else x

    change = lambda: monkeypatch.setitem(globals(), "HELD", Doubles)  # noqa: E731
    check_noticed(graphed(step, admit_after=1), change, "HELD (a global)")


def test_a_function_that_was_met_elsewhere_is_compared_in_its_module_too() -> None:
    def doubles(x: Tensor) -> Tensor:
        return x * 2

    settings.PART = doubles  # type: ignore[attr-defined]
    runner = graphed(lambda x: doubles(x) + settings.PART(x), admit_after=1)
    check_noticed(runner, lambda: setattr(settings, "PART", torch.exp), "PART was replaced")


def test_another_module_under_the_name_that_the_code_imports_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.by = 2.0  # type: ignore[attr-defined]

    def step(x: Tensor) -> Tensor:
        import settings_of_a_user

        return x * settings_of_a_user.by  # type: ignore[no-any-return]

    other = _of(settings.__name__, by=3.0)
    change = lambda: monkeypatch.setitem(sys.modules, settings.__name__, other)  # noqa: E731
    check_noticed(graphed(step, admit_after=1), change, "the module settings_of_a_user")


# A `__getattr__` of the module's own.

SCALES = {"by": 2.0}


def _answers(name: str) -> float:
    try:
        return SCALES[name]
    except KeyError:
        raise AttributeError(name) from None


def _answers_otherwise(name: str) -> float:
    return 7.0


def _scaled(x: Tensor) -> Tensor:
    return x * getattr(settings, "by", 1.0)


def test_what_a_module_answers_by_itself_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.__getattr__ = _answers  # type: ignore[method-assign,assignment]
    runner = graphed(_scaled, admit_after=1)
    check_noticed(runner, lambda: monkeypatch.setitem(SCALES, "by", 5.0), "SCALES['by']")


def test_another_answer_for_names_that_are_not_there_is_noticed() -> None:
    settings.__getattr__ = _answers  # type: ignore[method-assign,assignment]
    runner = graphed(_scaled, admit_after=1)
    change = lambda: setattr(settings, "__getattr__", _answers_otherwise)  # noqa: E731
    check_noticed(runner, change, "settings_of_a_user.__getattr__ was replaced")


def test_an_answer_that_comes_later_is_noticed() -> None:
    runner = graphed(_scaled, admit_after=1)
    change = lambda: setattr(settings, "__getattr__", _answers)  # noqa: E731
    check_noticed(runner, change, "settings_of_a_user.__getattr__ was set")


# What the code does not name.


def test_a_part_that_nobody_names_may_be_exchanged() -> None:
    settings.PART, settings.other = torch.relu, torch.sin  # type: ignore[attr-defined]
    runner = graphed(lambda x: settings.PART(x), admit_after=1)
    runner(X)
    for held in (torch.cos, nn.ReLU, math):
        settings.other = held  # type: ignore[attr-defined]
        runner(X)
        assert runner.last is not None
        assert runner.last.outcome is Outcome.REPLAYED, runner.last


def test_a_part_that_a_made_name_may_mean_is_compared_and_not_opened() -> None:
    inner = nn.Linear(2, 2)
    settings.unlike = inner  # type: ignore[attr-defined]
    found = reach(lambda x: getattr(settings, "".join(x)))
    assert any(place.value is inner for place in found.places)
    assert id(inner) not in found.modules


def test_a_part_that_is_named_later_in_the_walk_is_opened() -> None:
    class Late:
        def __init__(self) -> None:
            self.by = 2.0

        def named(self, x: Tensor) -> Tensor:
            return settings.unlike(x)  # type: ignore[no-any-return]

    inner = nn.Linear(2, 2)
    settings.unlike = inner  # type: ignore[attr-defined]
    late = Late()
    found = reach(lambda x: (settings, getattr(late, "".join(x)), late.named(x)))
    assert id(inner) in found.modules


def test_each_place_is_compared_once() -> None:
    settings.PART, settings.by = torch.relu, 2.0  # type: ignore[attr-defined]

    def inner(x: Tensor) -> Tensor:
        return settings.PART(x) * settings.by * math.pi  # type: ignore[no-any-return]

    found = reach(lambda x: inner(settings.PART(x)) * settings.by * math.pi)
    where = [(id(place.container), place.key) for place in found.places]
    assert len(where) == len(set(where))


def test_on_unfit_raise_has_no_part_in_it() -> None:
    settings.PART = torch.relu  # type: ignore[attr-defined]
    runner = graphed(lambda x: settings.PART(x), admit_after=1, on_unfit="raise")
    runner(X)
    settings.PART = torch.exp  # type: ignore[attr-defined]
    torch.testing.assert_close(runner(X), X.exp())
    assert runner.last is not None
    assert runner.last.reason is Reason.ATTRIBUTE_CHANGED
