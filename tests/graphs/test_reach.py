"""What is reached from a callable, and what is left alone."""

import collections
import functools
import itertools
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import graphed
from ostinato.graphs.effects import Effects
from ostinato.graphs.reach import reach
from ostinato.graphs.reading import line_storing, names_read, names_stored
from ostinato.graphs.watch import Watch

LIMIT = 3.0


def names(*roots: object) -> set[str]:
    return {place.name for place in reach(*roots).places}


def test_parameters_buffers_and_submodules_are_named_by_path() -> None:
    module = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    found = names(module)
    assert {"0", "1", "0.weight", "0.bias", "1.running_mean", "1.eps"} <= found
    assert len(reach(module).modules) == 3


def test_a_global_that_a_helper_reads_is_reached() -> None:
    def outer(x: Tensor) -> Tensor:
        return inner(x)

    assert "LIMIT (a global)" in names(outer)


def inner(x: Tensor) -> Tensor:
    return x.clamp(max=LIMIT)


def test_a_loop_of_references_ends() -> None:
    held: dict[str, Any] = {}
    held["self"] = held
    module = nn.Linear(1, 1)
    held["module"] = module
    module.back = held  # type: ignore[assignment]
    assert len(reach(module).modules) == 1


def test_a_container_too_large_to_walk_is_measured_all_the_same() -> None:
    many = list(range(10_000))
    found = reach(lambda: many)
    assert len(found.places) < 10
    assert any(size.held is many for size in found.sizes)


def test_libraries_are_not_walked() -> None:
    lock, counts = threading.Lock(), collections.Counter("aab")

    def step(x: Tensor) -> Tensor:
        with lock:
            return torch.nn.functional.relu(x) * counts["a"]

    found = reach(step)
    assert not any("has_torch_function" in place.name for place in found.places)
    assert "torch.nn.functional.relu" in {place.name for place in found.places}
    assert "counts['a']" in {place.name for place in found.places}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_does_not_seem_to_change_all_the_time() -> None:
    scripted = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    assert Watch(scripted).changed() is None
    runner = graphed(scripted, admit_after=1)
    with torch.no_grad():
        for value in range(4):
            x = torch.full((1, 2), float(value))
            torch.testing.assert_close(runner(x), scripted(x))
        scripted.weight.data = torch.ones(2, 2)
        torch.testing.assert_close(runner(x), scripted(x))


def test_names_are_read_off_nested_code_and_string_look_ups() -> None:
    def outer(model: Any) -> Any:
        return lambda: model.first + getattr(model, "second", 0)

    assert {"first", "second"} <= names_read(outer.__code__)


def test_names_that_code_may_assign() -> None:
    def assigns(model: Any) -> None:
        model.count += 1

    def fills(x: Tensor) -> None:
        x[0] = 1

    def sets(model: Any, name: str) -> None:
        setattr(model, name, 1)

    assert names_stored(assigns.__code__) == {"count"}
    assert names_stored(fills.__code__) == {"[]"}
    assert names_stored(sets.__code__) == {"*"}
    line = line_storing([fills, assigns], "count")  # type: ignore[list-item]
    assert line is not None
    assert line.endswith("`model.count += 1`")
    assert line_storing([fills], "count") is None  # type: ignore[list-item]


def test_what_was_given_without_a_name_is_told_without_one() -> None:
    ticks = itertools.count()
    found = reach(functools.partial(lambda ticks, x: x * next(ticks), ticks))
    texts = [effect.text for effect in Effects.foreseen(found)]
    assert "it may take an item from the count, and nothing puts that back" in texts


def test_a_class_whose_match_args_are_none_is_walked_past() -> None:
    class Slotted:
        __slots__ = ("__match_args__",)

    kept = [Slotted, Slotted()]

    def step(x: Tensor) -> Tensor:
        match len(kept), kept[0]:
            case 2, type():
                return x * 2
        return x

    g = graphed(step, admit_after=1)
    for _ in range(2):
        assert torch.equal(g(torch.ones(2)), torch.full((2,), 2.0))
