"""Plain values: which can be compared by value, and what makes two of them one."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Runner, graphed
from ostinato.graphs.places import PLAIN, carries_more, same_plain


class Level(int):
    gain = 1.0


class Slotted(float):
    __slots__ = ("gain",)


class Bare(str):
    __slots__ = ()


class Kind(IntEnum):
    A = 1


NAN = float("nan")


@pytest.mark.parametrize("value", [1, True, 2.0, 1j, "a", b"a", None, Kind.A, torch.float32,
                                   torch.device("cpu"), np.float64(1), Bare("a")])  # fmt: skip
def test_values_of_torch_and_python_are_plain(value: Any) -> None:
    assert isinstance(value, PLAIN)
    assert not carries_more(value)


@pytest.mark.parametrize("value", [Level(1), Slotted(1.0)])
def test_a_number_that_carries_attributes_is_an_object(value: Any) -> None:
    assert not isinstance(value, PLAIN)
    assert carries_more(value)
    assert not same_plain(value, type(value)(value))


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        (1, 1, True), (1, True, False), (1, 1.0, False), (0.0, 0.0, True), (0.0, -0.0, False),
        (NAN, NAN, True), (2.5, 3.5, False), (0j, -0j, False), (complex(0, 0.0), 0j, True),
        ("a", "a", True), ([1], [1], False), (Kind.A, Kind.A, True),
        (np.float64(0.0), np.float64(-0.0), False),
    ],
)  # fmt: skip
def test_equal_values_that_compute_alike_are_the_same(then: Any, now: Any, same: bool) -> None:
    assert same_plain(then, now) is same


def test_a_number_with_attributes_is_recorded_for_itself(device: torch.device) -> None:
    low, high = Level(3), Level(3)
    low.gain, high.gain = 2.0, 5.0
    g: Runner[[Tensor, Level], Tensor] = graphed(lambda x, level: x * level.gain, admit_after=1)
    x = torch.ones(1, device=device)
    with torch.no_grad():
        assert [g(x, each).item() for each in (low, low, high, high)] == [2, 2, 5, 5]
        assert g.last is not None
        assert g.last.outcome is Outcome.REPLAYED
        high.gain = 7.0
        with pytest.warns(match="gain"):
            assert g(x, high).item() == 7
