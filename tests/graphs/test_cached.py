"""What a function's cache holds after extra runs: nothing that hides the call's own effects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Buckets, Reason, graphed
from ostinato.graphs.cached import CacheState

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("maxsize", [None, 2, 3, 64])
def test_new_answers_are_forgotten_and_old_ones_stay(maxsize: int | None) -> None:
    asked: list[int] = []

    @functools.lru_cache(maxsize)
    def answer(n: int) -> dict[int, int]:
        asked.append(n)
        return {n: n}

    for n in (1, 2):
        answer(n)
    state = CacheState(answer)
    for n in (2, 3):
        answer(n)
    state.put_back()
    asked.clear()
    assert answer(2) == {2: 2}
    assert asked == []  # it stays, the latest that was asked for
    assert answer(3) == {3: 3}
    assert asked == [3]


@pytest.mark.parametrize("maxsize", [1, 4])
def test_a_bounded_cache_goes_on_after_many_such_runs(maxsize: int) -> None:
    @functools.lru_cache(maxsize)
    def answer(n: int) -> list[int]:
        return [n]

    for n in range(200):
        state = CacheState(answer)
        assert answer(n % 7) == [n % 7]
        assert answer(n % 5) == [n % 5]
        state.put_back()
        assert answer(n % 3) == [n % 3]
        assert answer.cache_info().currsize <= maxsize


def _memo_of(log: list[int], decorate: Callable[[Any], Any]) -> Callable[[int], int]:
    @decorate
    def memo(n: int) -> int:
        log.append(n)
        return len(log)

    return memo  # type: ignore[no-any-return]


@pytest.mark.parametrize("admit_after", [1, 2])
@pytest.mark.parametrize(
    "decorate", [functools.cache, functools.lru_cache(maxsize=2), functools.lru_cache(maxsize=64)]
)
def test_what_a_remembered_function_does_is_done_once(decorate: Any, admit_after: int) -> None:
    log: list[int] = []
    memo = _memo_of(log, decorate)
    runner = graphed(lambda x: x * memo(len(log)), admit_after=admit_after)
    assert [float(runner(torch.ones(1))) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert log == [0, 1, 2, 3, 4, 5]
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT


@pytest.mark.parametrize("kind", [staticmethod, property])
def test_a_remembered_method_is_looked_into(kind: Any) -> None:
    class Model(nn.Module):
        log: list[int] = []  # noqa: RUF012 - shared on purpose

    log = Model.log

    @functools.cache
    def noted(*of: Any) -> int:
        log.append(1)
        return len(log)

    Model.noted = kind(noted)  # type: ignore[attr-defined]

    def forward(self: Any, x: Tensor) -> Tensor:
        return x * (self.noted if kind is property else self.noted(len(log)))

    Model.forward = forward
    runner = graphed(Model(), admit_after=1)
    expected = [1, 1, 1] if kind is property else [1, 2, 3]
    assert [float(runner(torch.ones(1))) for _ in range(3)] == expected
    assert log == [1] * expected[-1]


def test_runs_on_fake_tensors_leave_the_answers_of_before() -> None:
    asked: list[int] = []

    @functools.cache
    def scale(n: int) -> float:
        asked.append(n)
        return 2.0

    def step(x: Tensor) -> Tensor:
        return x * scale(x.shape[0])

    scale(100)
    asked.clear()
    runner = graphed(step, admit_after=1, buckets={"x": Buckets(dim=0, sizes=(4, 8))})
    for size in (2, 5):
        runner(torch.ones(size))
    scale(100)
    assert 100 not in asked
