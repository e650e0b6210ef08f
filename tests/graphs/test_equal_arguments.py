"""Arguments that compare equal, or have the same items, and yet differ for code that looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from ostinato import Reason, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")


class Tags(frozenset[int]):
    k: int


def tagged(k: int) -> Tags:
    tags = Tags({1})
    tags.k = k
    return tags


class Pair(NamedTuple):
    a: int


class WithMore(Pair):
    k: int


def more(k: int) -> WithMore:
    pair = WithMore(1)
    pair.k = k
    return pair


class AllAlike(type):
    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return 1


class One(metaclass=AllAlike):
    k = 1


class Two(metaclass=AllAlike):
    k = 2


def k_of(x: Tensor, value: Any) -> Tensor:
    return x * value.k


CASES: dict[str, tuple[Callable[[Tensor, Any], Tensor], Any, Any]] = {
    "the end of a range": (lambda x, r: x * r.stop, range(0, 3, 2), range(0, 4, 2)),
    "the step of a range": (lambda x, r: x * r.step, range(0, 1, 5), range(0, 1, 7)),
    "the start of an empty range": (lambda x, a: x * a[0].start, [range(7, 7)], [range(5, 5)]),
    "a range in a slice": (lambda x, s: x * s.stop.stop, slice(range(2)), slice(range(0, 3, 2))),
    "beside a frozenset": (k_of, tagged(1), tagged(5)),
    "beside a named tuple": (lambda x, p: x * getattr(p, "k", 7), more(7), more(2)),
    "of a class": (k_of, One, Two),
}


@pytest.mark.parametrize("name", CASES)
def test_each_is_answered_as_by_eager(name: str, device: torch.device) -> None:
    step, first, second = CASES[name]
    g = graphed(step)
    x = torch.ones(2, device=device)
    for value in (first, first, first, second, second, first, second):
        assert g(x, value).tolist() == step(x, value).tolist()


@pytest.mark.parametrize(
    ("step", "made"),
    [
        (lambda x, r: x * r.stop, lambda: range(3)),
        (lambda x, p: x * p.a, lambda: WithMore(3)),
        (lambda x, t: x * len(t), lambda: frozenset({1, 2})),
        (lambda x, kind: x * kind(2), lambda: int),
    ],
    ids=["range", "named tuple", "frozenset", "class"],
)
def test_equal_ones_without_a_difference_are_replayed(
    step: Callable[[Tensor, Any], Tensor], made: Callable[[], Any], device: torch.device
) -> None:
    g = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(4):
        g(x, made())
    assert g.report().replays == 3


def test_a_named_tuple_with_more_is_read_as_it_is(device: torch.device) -> None:
    g = graphed(k_of, admit_after=1)
    x = torch.ones(2, device=device)
    assert g(x, more(3)).tolist() == [3.0, 3.0]
    assert g.last is not None
    assert g.last.reason is not Reason.CAPTURE_ERROR
