"""Agreement: roundings pass, rows that should not be there do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ostinato.graphs.agreement import disagreement, other_layout
from ostinato.graphs.lease import Lease

EQUAL: list[tuple[Any, Any]] = [
    (torch.ones(3), torch.ones(3)),
    (torch.ones(3), torch.ones(3) + 1e-5),
    (torch.full((2,), float("nan")), torch.full((2,), float("nan"))),
    (torch.full((2,), float("inf")), torch.full((2,), float("inf"))),
    (torch.tensor([1, 2]), torch.tensor([1, 2])),
    (torch.ones(2).half(), torch.ones(2).half() + 1e-3),
    (torch.zeros(0), torch.zeros(0)),
    (torch.ones(2).to(torch.float8_e4m3fn), torch.ones(2).to(torch.float8_e4m3fn)),
    (torch.tensor(3).to(torch.uint16), torch.tensor(3).to(torch.uint16)),
    (Lease(torch.ones(1)), torch.ones(1)),
    (1.5, 1.5), (float("nan"), float("nan")), ("a", "a"), (None, None),
    (np.float32(1), np.float32(1)),
]  # fmt: skip
DIFFERENT: list[tuple[Any, Any, str]] = [
    (torch.ones(3), torch.ones(4), "shape [3] replayed, [4] eager"),
    (torch.ones(3), torch.ones(3).double(), "torch.float32 replayed, torch.float64 eager"),
    (torch.ones(3), torch.ones(3) + 0.1, "off by 0.1 where the largest value is 1.1"),
    (torch.tensor([1, 2]), torch.tensor([1, 3]), "1 of 2 values differ"),
    (
        torch.tensor([1.0, 2.0]).to(torch.float8_e5m2),
        torch.tensor([1.0, 4.0]).to(torch.float8_e5m2),
        "1 of 2 values differ",
    ),
    (torch.tensor([True]), torch.tensor([False]), "1 of 1 values differ"),
    (torch.tensor([float("nan")]), torch.tensor([1.0]), "off by inf"),
    (torch.tensor([float("inf")]), torch.tensor([-float("inf")]), "off by inf"),
    (torch.zeros(2), torch.tensor([0.0, 1e-20]), "off by 1e-20"),
    (1, True, "1 replayed, True eager"),
    (0.0, -0.0, "0.0 replayed, -0.0 eager"),
    (torch.ones(1), None, "eager"),
]


@pytest.mark.parametrize(("mine", "theirs"), EQUAL)
def test_what_differs_by_a_rounding_agrees(mine: Any, theirs: Any) -> None:
    assert disagreement([mine], [theirs], ["y"]) is None


@pytest.mark.parametrize(("mine", "theirs", "text"), DIFFERENT)
def test_what_differs_is_told_with_its_place(mine: Any, theirs: Any, text: str) -> None:
    found = disagreement([0, mine], [0, theirs], ["x", "y"])
    assert found is not None
    assert found.startswith("y: ")
    assert text in found


def test_a_lone_result_is_called_the_result() -> None:
    found = disagreement([torch.ones(1)], [torch.zeros(1)], [""])
    assert found is not None
    assert found.startswith("the result: ")


def test_another_layout_is_told_with_its_place_and_strides() -> None:
    x = torch.ones(2, 3)
    found = other_layout([x, x], [x, torch.ones(3, 2).t()], ["a", "b"])
    assert found == "b: strides [3, 1] recorded, [1, 2] eager"


def test_strides_along_a_dimension_of_one_and_of_nothing_do_not_count() -> None:
    x = torch.ones(1, 3)
    others = [torch.empty_strided((1, 3), (7, 1)), 2, torch.ones(2, 0).t()]
    assert other_layout([x, 1, torch.ones(0, 2)], others, [""] * 3) is None
