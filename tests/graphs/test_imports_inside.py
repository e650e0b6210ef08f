"""What a function imports in its own body is compared as what its file imports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphs import elsewhere
from graphs.replaying import check_replay
from ostinato import Outcome, Reason, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")


def by_name(x: Tensor) -> Tensor:
    from graphs.elsewhere import scale

    return x * scale


def by_module(x: Tensor) -> Tensor:
    import graphs.elsewhere as other

    return x * other.scale


def by_package(x: Tensor) -> Tensor:
    from graphs import elsewhere as other

    return x * other.scale


def by_function(x: Tensor) -> Tensor:
    from graphs.elsewhere import scaled

    return scaled(x)


def by_path(x: Tensor) -> Tensor:
    import graphs.elsewhere

    return x * graphs.elsewhere.scale


def by_inner_function(x: Tensor) -> Tensor:
    def scale_of() -> float:
        from graphs.elsewhere import scale

        return scale

    return x * scale_of()


@pytest.mark.parametrize(
    "step", [by_name, by_module, by_package, by_function, by_path, by_inner_function]
)
@pytest.mark.parametrize("admit_after", [1, 2])
def test_a_value_of_an_imported_module_is_that_of_the_call(
    step: Callable[[Tensor], Tensor],
    admit_after: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g = graphed(step, admit_after=admit_after)
    x = torch.ones(3, device=device)
    for _ in range(3):
        assert g(x).tolist() == [2.0] * 3
    check_replay(g, x)
    monkeypatch.setattr(elsewhere, "scale", 5.0)
    assert g(x).tolist() == [5.0] * 3
    assert g.last is not None
    assert g.last.reason is Reason.ATTRIBUTE_CHANGED
    check_replay(g, x)


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that nobody has imported yet."""
    (tmp_path / "imported_by_the_step.py").write_text("scale = 2.0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "imported_by_the_step", raising=False)
    return "imported_by_the_step"


def reading_later(x: Tensor) -> Tensor:
    import imported_by_the_step as other

    return x * other.scale


def writing_later(x: Tensor) -> Tensor:
    import imported_by_the_step as other

    other.last = x * 2
    return x + 1


@pytest.mark.parametrize("admit_after", [1, 2])
def test_a_module_that_the_first_call_imports_is_compared_too(
    later: str, admit_after: int, device: torch.device
) -> None:
    g = graphed(reading_later, admit_after=admit_after)
    x = torch.ones(3, device=device)
    for _ in range(4):
        g(x)
    check_replay(g, x)
    sys.modules[later].scale = 5.0  # type: ignore[attr-defined]
    assert g(x).tolist() == [5.0] * 3


@pytest.mark.parametrize("admit_after", [1, 2])
def test_what_is_stored_in_such_a_module_is_of_the_latest_call(
    later: str, admit_after: int, device: torch.device
) -> None:
    g = graphed(writing_later, admit_after=admit_after)
    for value in range(2, 8):
        x = torch.full((3,), float(value), device=device)
        g(x)
        if value > 3:  # the second call finds the module there, and looks again
            assert sys.modules[later].last.tolist() == [2.0 * value] * 3  # type: ignore[attr-defined]
    assert g.last is not None
    assert g.last.outcome is Outcome.EAGER


def test_a_module_that_is_not_there_hinders_no_replay(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        try:
            import nobody_has_this_module as other  # type: ignore[import-not-found]
        except ImportError:
            return x * 2
        return x * other.scale

    g = graphed(step, admit_after=1)
    x = torch.ones(3, device=device)
    for _ in range(3):
        g(x)
    check_replay(g, x)


def test_a_module_that_loads_its_parts_when_asked_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask(name: str) -> object:
        raise RuntimeError(f"asked for {name}")

    monkeypatch.setitem(vars(elsewhere), "__getattr__", ask)

    def step(x: Tensor) -> Tensor:
        if x.dim() > 1:
            from graphs.elsewhere import nothing_there  # type: ignore[attr-defined]

            return x * nothing_there
        return x * 2

    g = graphed(step, admit_after=1, backend="tape")
    g(torch.ones(3))
    check_replay(g, torch.ones(3))
