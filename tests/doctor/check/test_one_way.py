"""A number that Python reads is assumed, so that a check has followed one way only: it says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ostinato.doctor.check.questions import OF_THE_WAY, Holds
from ostinato.doctor.check.run import check
from ostinato.doctor.check.verdict import Checked, Verdict


def answers(checked: Checked) -> dict[str, Holds]:
    return {each.key: each.holds for each in checked.answers}


def compared(x: Tensor) -> Tensor:
    if x.sum().item() > 5:
        return x[x > 0]
    return x * 2


def compared_later(x: Tensor) -> Tensor:
    n = int(x.sum())
    m = n + 1
    if m > 4:
        return x[x > 0]
    return x * 2


def compared_of_a_list(x: Tensor) -> Tensor:
    values = x.tolist()
    return x[x > 0] if values[0] == 3 else x * 2


def counted(x: Tensor) -> Tensor:
    for _ in range(int(x.sum())):
        x = x + 1
    return x


@pytest.mark.parametrize("step", [compared, compared_later, compared_of_a_list, counted])
def test_a_branch_that_a_number_decides_is_a_no_and_leaves_the_other_side_open(
    step: Callable[[Tensor], Tensor],
) -> None:
    checked = check(lambda: (step, torch.ones(3)))
    said = answers(checked)
    assert said.pop("control-flow") is Holds.NO
    assert said.pop("host-reads") is Holds.NO
    assert said.pop("inputs") is Holds.YES
    assert set(said.values()) == {Holds.UNKNOWN}
    assert checked.verdict is Verdict.NOT_CAPTURABLE
    assert [each.is_branch for each in checked.blockers] == [True]
    assert "torch.where" in checked.blockers[0].instead


def test_the_line_of_the_branch_is_named_beside_that_of_the_read() -> None:
    checked = check(lambda: (compared_later, torch.ones(3)))
    read = checked.blockers[0]
    assert read.place is not None
    assert read.place.code == "n = int(x.sum())"
    assert read.detail.endswith("`if m > 4:`")
    assert "`if m > 4:`" in checked.gaps[0].what
    assert "check again" in checked.gaps[0].settles_it


def handed_on(x: Tensor) -> Tensor:
    return x * chosen(x.max().item())


def chosen(n: float) -> float:
    return 2.0 if n > 3 else 1.0


def test_a_number_that_cannot_be_followed_leaves_that_question_open_at_its_line() -> None:
    checked = check(lambda: (handed_on, torch.ones(3)))
    said = answers(checked)
    assert said["control-flow"] is Holds.UNKNOWN
    assert said["shapes"] is Holds.YES
    evidence = {each.key: each.evidence for each in checked.answers}
    assert evidence["control-flow"].endswith("`return x * chosen(x.max().item())`")
    assert checked.verdict is Verdict.NOT_CAPTURABLE


class OfTheHost(nn.Module):
    """Its threshold stays on the host, where reading it waits for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.threshold = torch.rand(())

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0] if self.threshold.item() > 2 else x * 2


def test_a_number_of_the_host_that_decides_leaves_the_whole_verdict_open() -> None:
    checked = check(lambda: (OfTheHost().cuda(), torch.ones(3, device="cuda")))
    assert checked.blockers == ()
    assert checked.verdict is Verdict.UNKNOWN
    said = answers(checked)
    assert {said[key] for key in OF_THE_WAY} == {Holds.UNKNOWN}


def test_a_condition_that_a_tensor_answers_is_followed_both_ways_and_leaves_nothing_open() -> None:
    checked = check(lambda: ((lambda x: x * 2 if x.sum() > 0 else x * 3), torch.ones(3)))
    assert answers(checked)["control-flow"] is Holds.NO
    assert checked.gaps == ()


def test_the_other_side_of_a_branch_is_one_gap_however_often_the_number_is_read() -> None:
    def step(x: Tensor) -> Tensor:
        for _ in range(3):
            if x.sum().item() > 5:
                x = x + 1
        return x

    assert len(check(lambda: (step, torch.ones(3))).gaps) == 1
