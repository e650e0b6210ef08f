"""A forward that spans devices, and several recordings (pytorch#153025: only the last valid)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike, check_refused
from graphs.replaying import check_replay, record, spoil
from ostinato import CaptureError, Outcome, Reason, UsageError, graphed


class Split(nn.Module):
    """The first half on one GPU, the second on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8).to("cuda:0")
        self.second = nn.Linear(8, 8).to("cuda:1")

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        return self.second(hidden.to("cuda:1"))


@pytest.mark.gpu2
def test_a_forward_across_two_gpus_runs_eagerly_with_the_reason_and_is_right() -> None:
    module = Split()
    module(torch.randn(4, 8, device="cuda:0"))  # cuBLAS has its workspaces
    check_refused(module, Reason.SEVERAL_DEVICES, torch.randn(4, 8, device="cuda:0"))


@pytest.mark.gpu2
@pytest.mark.parametrize("way", ["there", "back", "there-and-back", "peer-add"])
def test_a_copy_between_gpus_inside_names_its_line(way: str) -> None:
    other = torch.ones(4, device="cuda:1")
    steps: dict[str, Any] = {
        "there": lambda x: (x * 2).to("cuda:1"),
        "back": lambda x: x + (other * 2).to(x.device),
        "there-and-back": lambda x: (x.to("cuda:1") * 2).to("cuda:0"),
        "peer-add": lambda x: other.to("cuda:0") * x,
    }
    g = graphed(steps[way], admit_after=1)
    for _ in range(3):
        x = torch.randn(4, device="cuda:0")
        alike(g(x), steps[way](x))
        assert g.last is not None
        assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.SEVERAL_DEVICES), g.last


@pytest.mark.gpu2
def test_arguments_on_two_gpus_are_refused_at_sight() -> None:
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, y * 3

    x, y = torch.randn(4, device="cuda:0"), torch.randn(4, device="cuda:1")
    check_refused(step, Reason.SEVERAL_DEVICES, x, y)
    g = graphed(step, admit_after=1, on_unfit="raise")
    with pytest.raises((UsageError, CaptureError)) as caught:
        g(x, y)
    assert caught.value.code == "several-devices"


@pytest.mark.gpu2
def test_each_half_recorded_alone_stays_valid_beside_the_other() -> None:
    """What the remedy asks for: one recording for each device, all of them valid."""
    module = Split()
    first = record(lambda x: module.first(x).relu(), torch.randn(4, 8, device="cuda:0"))
    second = record(module.second, torch.randn(4, 8, device="cuda:1"))
    for rows in (4, 2, 4, 7, 2, 4, 7):
        x = torch.randn(rows, 8, device="cuda:0")
        spoil(first)
        spoil(second)
        torch.testing.assert_close(second(first(x).to("cuda:1")), module(x), rtol=1e-4, atol=1e-5)
    assert first.last is not None
    assert second.last is not None
    assert first.report().replays + first.report().recordings >= 6


@pytest.mark.gpu
def test_a_forward_with_a_part_on_the_cpu_runs_eagerly_with_the_reason() -> None:
    weight = torch.randn(4, 4)

    def step(x: Tensor) -> Tensor:
        return (x.cpu() @ weight).to(x.device)

    check_refused(
        step, Reason.HOST_SYNC, torch.randn(2, 4, device="cuda:0"), line="x.cpu()", file=__file__
    )


def test_a_part_on_another_device_type_is_refused_or_right(device: torch.device) -> None:
    """The kind where one device is all there is: meta stands for a second one."""

    def step(x: Tensor) -> dict[str, Tensor]:
        return {"y": x * 2, "shape_only": torch.empty(2, 3, device="meta") + 1}

    g = graphed(step, admit_after=1)
    for _ in range(3):
        x = torch.randn(4, device=device)
        result = g(x)
        alike(result["y"], x * 2)
        assert result["shape_only"].device.type == "meta"
        assert result["shape_only"].shape == (2, 3)


def test_all_recordings_of_a_runner_stay_valid_in_any_order(device: torch.device) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(device)
    g = graphed(module, admit_after=1)
    shapes = [(1, 8), (2, 8), (3, 8), (5, 8), (2, 2, 8)]
    for shape in shapes:
        g(torch.randn(*shape, device=device))
    for order in itertools.islice(itertools.permutations(shapes), 0, 120, 11):
        for shape in order:
            check_replay(g, torch.randn(*shape, device=device))
    assert g.report().recordings == len(shapes)


def test_recordings_of_several_runners_stay_valid_when_one_is_closed(
    device: torch.device,
) -> None:
    """Pools: closing one runner must not give away the memory of another."""
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(device)
    runners = [record(module, torch.randn(rows, 8, device=device)) for rows in (1, 2, 3)]
    for closed in (2, 0):
        runners[closed].close()
        junk = [torch.full((rows, 8), float("nan"), device=device) for rows in range(1, 40)]
        check_replay(runners[1], torch.randn(2, 8, device=device))
        del junk
