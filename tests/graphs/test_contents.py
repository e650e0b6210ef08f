"""Contents that change in place, by no assignment: compared while small, refused when large."""

from __future__ import annotations

import array
import io
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphs.replaying import check_replay
from ostinato.graphs import Outcome, Reason, Runner, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
X = torch.tensor([1.0, 2.0])


def _first(held: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x * float(held[0])


def _largest(held: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x * max(held)


def _set_first(held: Any) -> None:
    held[0] = 7


def _exchange(held: Any) -> None:
    held.remove(2)
    held.add(7) if isinstance(held, set) else held.append(7)


CHANGES: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], None]]] = {
    "array of numpy": (lambda: np.array([2.0, 3.0]), _first, _set_first),
    "view of an array": (lambda: np.array([[2.0], [3.0]])[0], _first, _set_first),
    "bytearray": (lambda: bytearray([2, 3]), _first, _set_first),
    "array of Python": (lambda: array.array("d", [2.0, 3.0]), _first, _set_first),
    "set": (lambda: {1, 2}, _largest, _exchange),
    "deque": (lambda: deque([1, 2]), _largest, _exchange),
}


def _recorded(fn: Callable[..., Any]) -> Runner[..., Any]:
    runner = graphed(fn, admit_after=1)
    runner(X)
    check_replay(runner, X)
    return runner


@pytest.mark.parametrize("kind", CHANGES)
def test_what_changes_in_place_is_noticed(kind: str) -> None:
    make, reading, change = CHANGES[kind]
    held = make()
    runner = _recorded(reading(held))
    change(held)
    assert torch.equal(runner(X), X * 7)
    check_replay(runner, X)


def test_an_array_in_an_attribute_is_noticed_and_one_that_no_code_names_may_change() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by, self.unread = np.array([2.0]), np.array([2.0])

        def forward(self, x: Tensor) -> Tensor:
            return x * float(self.by[0])

    module = Scale()
    runner = _recorded(module)
    module.unread[0] = 7.0
    check_replay(runner, X)
    module.by[0] = 7.0
    assert torch.equal(runner(X), X * 7)


def _refused(fn: Callable[..., Any]) -> str:
    runner = graphed(fn, admit_after=1)
    runner(X)
    runner(X)
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
    assert runner.last.outcome is Outcome.EAGER
    return str(runner.last.detail)


def test_an_array_too_large_to_compare_is_refused_by_name_unless_it_is_read_only() -> None:
    table = np.full(5000, 2.0)
    assert "ndarray table" in _refused(lambda x: x * float(table[0]))
    table.setflags(write=False)
    assert torch.equal(_recorded(lambda x: x * float(table[0]))(X), X * 2)


def test_a_read_only_view_of_an_array_that_can_be_written_is_no_read_only_array() -> None:
    table = np.full(5000, 2.0)
    view = table[:]
    view.setflags(write=False)
    assert "ndarray view" in _refused(lambda x: x * float(view[0]))


def test_an_array_of_objects_is_refused() -> None:
    table = np.array([2.0, None], dtype=object)
    assert "Python objects" in _refused(lambda x: x * table[0])


def test_a_run_that_writes_into_an_array_is_refused_and_counts_once() -> None:
    counts = np.zeros(2)

    def step(x: Tensor) -> Tensor:
        counts.put(0, counts[0] + 1)
        return x * 2

    assert "writes into the ndarray counts" in _refused(step)
    assert counts[0] == 2


# What acts on the world outside torch.


def test_a_function_that_puts_into_a_queue_is_refused_and_puts_once_per_call() -> None:
    for made in (queue.Queue(), queue.SimpleQueue()):
        results: Any = made

        def step(x: Tensor, results: Any = results) -> Tensor:
            results.put(1)
            return x * 2

        assert "Queue" in _refused(step)
        assert results.qsize() == 2


def test_a_function_that_writes_to_an_open_file_is_refused_and_writes_once_per_call() -> None:
    log = io.StringIO()

    def step(x: Tensor) -> Tensor:
        log.write("x")
        return x * 2

    assert "StringIO log" in _refused(step)
    assert log.getvalue() == "xx"


def test_a_function_that_sets_an_event_is_refused() -> None:
    done = threading.Event()

    def step(x: Tensor) -> Tensor:
        done.set()
        return x * 2

    assert "Event done" in _refused(step)


def test_a_queue_that_the_code_only_looks_at_is_no_obstacle() -> None:
    results: queue.Queue[int] = queue.Queue()
    _recorded(lambda x: x * 2 if results.maxsize == 0 else x)
