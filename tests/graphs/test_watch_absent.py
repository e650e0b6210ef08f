"""What was not there when a recording was made, and is looked for by the code, is noticed."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, Runner, graphed
from ostinato.graphs.reading import variables_read

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")

EXTRA: float


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def tries(x: Tensor) -> Tensor:
    try:
        return x * EXTRA
    except NameError:
        return x


def tries_inside(x: Tensor) -> Tensor:
    return sum([tries(x) for _ in range(1)], torch.zeros_like(x))


def hides(x: Tensor) -> Tensor:
    return abs(x)


def in_a_class_body(x: Tensor) -> Tensor:
    class Scales:
        try:
            by = EXTRA
        except NameError:
            by = 1.0

    return x * Scales.by


def check_noticed(runner: Runner[..., Any], x: Tensor, change: Any, told: str) -> None:
    for _ in range(2):
        before = runner(x)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    change()
    after = runner(x)
    assert (runner.last.outcome, runner.last.reason) == (
        Outcome.RECORDED,
        Reason.ATTRIBUTE_CHANGED,
    )
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, runner.fn(x))
    assert any(told in line for line in str(runner.report()).splitlines()), runner.report()


@pytest.mark.parametrize("fn", [tries, tries_inside, in_a_class_body])
def test_a_global_that_comes(
    fn: Any, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        monkeypatch.setitem(globals(), "EXTRA", 5.0)

    check_noticed(graphed(fn, admit_after=1), torch.ones(2, device=device), change, "EXTRA")


def test_a_global_that_comes_to_hide_a_builtin(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        monkeypatch.setitem(globals(), "abs", lambda x: x * 3)

    runner = graphed(hides, admit_after=1)
    check_noticed(runner, torch.ones(2, device=device), change, "abs")


def test_a_variable_that_comes_to_a_module(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = types.ModuleType("settings_of_a_user")
    monkeypatch.setitem(sys.modules, settings.__name__, settings)

    def step(x: Tensor) -> Tensor:
        try:
            return x * settings.by
        except AttributeError:
            return x

    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    runner(x)
    settings.never_asked_for = 3.0  # type: ignore[attr-defined]
    check_noticed(runner, x, lambda: setattr(settings, "by", 5.0), "settings_of_a_user.by")


def test_a_global_that_nobody_looks_for_changes_nothing(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = graphed(tries, admit_after=1)
    x = torch.ones(2, device=device)
    for value in (1, 2, 3):
        runner(x)
        monkeypatch.setitem(globals(), f"another_{value}", value)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_variables_are_read_off_nested_code() -> None:
    def outer(model: Any) -> Any:
        return lambda: model.attribute + EXTRA + len(model)  # noqa: F821

    assert variables_read(outer.__code__) == {"EXTRA", "len"}
