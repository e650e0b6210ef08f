"""What the host reads, asserts or never comes to the end of, and the rows that say so."""

from __future__ import annotations

import copy
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ostinato.doctor.check import traced
from ostinato.doctor.check.questions import Holds
from ostinato.doctor.check.run import check
from ostinato.doctor.check.verdict import Verdict

SIZED_BY_VALUES: dict[str, Callable[[Tensor], object]] = {
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "boolean index": lambda x: x[x > 0],
    "unique": lambda x: x.unique(),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.ones_like(x, dtype=torch.int64)),
    "where": lambda x: torch.where(x > 0),
}


@pytest.mark.parametrize("name", SIZED_BY_VALUES)
def test_a_shape_that_depends_on_values_is_read_by_the_host(name: str) -> None:
    checked = check(lambda: (SIZED_BY_VALUES[name], torch.ones(3, device="cuda")))
    holds = {each.key: each.holds for each in checked.answers}
    assert holds["shapes"] is Holds.NO
    assert holds["host-reads"] is Holds.NO


def test_a_repeat_with_its_size_given_is_not_read() -> None:
    def step(x: Tensor) -> Tensor:
        return x.repeat_interleave(torch.ones_like(x, dtype=torch.int64), output_size=3)

    checked = check(lambda: (step, torch.ones(3, device="cuda")))
    assert checked.verdict is Verdict.CAPTURABLE


@pytest.mark.parametrize("asked", ["x.sum() > -1e9", "not x.isnan().any()"])
def test_an_assertion_on_a_value_is_a_read_and_no_failing_call(asked: str, tmp_path: Path) -> None:
    # In a file of its own: pytest puts code of its own into the assertions of a test.
    file = tmp_path / "asserts.py"
    file.write_text(f"def step(x):\n    assert {asked}\n    return x + 1\n", "utf-8")
    step = runpy.run_path(str(file))["step"]
    checked = check(lambda: (step, torch.ones(3)))
    assert [each.reason for each in checked.blockers] == ["host-sync"]
    assert checked.gaps == ()


def test_an_assertion_elsewhere_after_one_assumed_value_is_said_in_the_singular() -> None:
    def step(x: Tensor) -> Tensor:
        if x.sum() > 0:
            raise AssertionError("no such way")
        return x + 1

    [gap] = check(lambda: (step, torch.ones(3))).gaps
    assert gap.what == "after 1 assumed value it raised AssertionError: no such way"


def test_numpy_of_a_tensor_on_a_gpu_is_told_to_be_an_error_there() -> None:
    def alone(x: Tensor) -> object:
        return x.numpy().sum()

    def from_the_host(x: Tensor) -> object:
        return x.cpu().numpy().sum()

    advice = [check(lambda fn=fn: (fn, torch.ones(3))).blockers[0] for fn in (alone, from_the_host)]
    assert "TypeError" in advice[0].instead
    assert "TypeError" not in advice[1].instead


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_deep_copy_of_a_tensor_is_left_open_and_a_clone_is_not(device: str) -> None:
    def deep(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(copy.deepcopy([x, x]))

    def clone(x: Tensor) -> Tensor:
        return x.clone()

    checked = check(lambda: (deep, torch.ones(3, device=device)))
    assert checked.blockers == ()
    assert checked.verdict is Verdict.UNKNOWN
    [gap] = checked.gaps
    assert "copy.deepcopy" in gap.what
    assert gap.place is not None
    assert "copy.deepcopy([x, x])" in gap.place.code
    assert check(lambda: (clone, torch.ones(3, device=device))).verdict is Verdict.CAPTURABLE


def test_a_call_without_an_end_is_left_open_at_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "_MOST_CALLS", 50)

    def step(x: Tensor) -> Tensor:
        while True:
            x = x + 1

    checked = check(lambda: (step, torch.ones(3, device="cuda")))
    assert checked.verdict is Verdict.UNKNOWN
    [gap] = checked.gaps
    assert gap.what == "the call cannot be judged: after 50 calls of torch it does not end"
    assert gap.place is not None
    assert gap.place.code == "x = x + 1"


def test_a_call_that_makes_just_so_many_calls_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "_MOST_CALLS", 50)

    def step(x: Tensor) -> Tensor:
        for _ in range(50):
            x = x + 1
        return x

    assert check(lambda: (step, torch.ones(3, device="cuda"))).verdict is Verdict.CAPTURABLE
