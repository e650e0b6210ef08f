"""Warm-ups that train a BatchNorm (LibreYOLO#671: three warm-ups were three extra updates)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import spoil
from ostinato import Outcome, Reason, graphed


class Peak(nn.Module):
    """Keeps the largest value seen and counts its calls, both on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.full((), -1e9))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.kept = torch.zeros(4)  # neither a parameter nor a buffer

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.kept = fn(self.kept)
        return super()._apply(fn, recurse)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.kept.add_(x.mean(0))
        torch.maximum(self.peak, x.max(), out=self.peak)
        return x / self.peak + self.kept


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch-norm": lambda: nn.BatchNorm1d(4),
    "high-momentum": lambda: nn.BatchNorm1d(4, momentum=0.9),
    "inside": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()),
    "instance-norm": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.InstanceNorm1d(1, track_running_stats=True)
    ),
    "spectral-norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
    "own-buffers": Peak,
}


def state(module: nn.Module) -> dict[str, Tensor]:
    kept = {"kept": module.kept.clone()} if isinstance(module, Peak) else {}
    return {**copy.deepcopy(dict(module.state_dict())), **kept}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("warmups", [0, 3])
def test_statistics_are_updated_once_a_call(kind: str, warmups: int, device: torch.device) -> None:
    mine = MODULES[kind]().to(device).train()
    theirs = copy.deepcopy(mine)
    g = graphed(mine, admit_after=1, warmups=warmups)
    for number in range(6):
        x = torch.randn(5, 4, device=device)
        spoil(g)
        alike(g(x), theirs(x))
        alike(state(mine), state(theirs))
        assert g.last is not None
        assert g.last.outcome is (Outcome.REPLAYED if number else Outcome.RECORDED), g.last


def test_a_function_that_closes_over_the_module_counts_once_too(device: torch.device) -> None:
    norm = nn.BatchNorm1d(4).to(device).train()
    theirs = copy.deepcopy(norm)
    g = graphed(lambda x: norm(x) * 2, admit_after=1)
    for _ in range(3):
        x = torch.randn(5, 4, device=device)
        alike(g(x), theirs(x) * 2)
        alike(state(norm), state(theirs))
    assert norm.num_batches_tracked == 3


def test_warming_up_ahead_updates_nothing(device: torch.device) -> None:
    norm = nn.BatchNorm1d(4).to(device).train()
    before = state(norm)
    x = torch.randn(5, 4, device=device)
    g = graphed(norm)
    assert g.warm(x).outcome is Outcome.RECORDED
    alike(state(norm), before)
    g(x)
    assert norm.num_batches_tracked == 1


def test_a_cumulative_average_reads_its_counter_and_runs_eagerly(device: torch.device) -> None:
    """momentum=None divides by a count that Python reads."""
    mine = nn.BatchNorm1d(4, momentum=None).to(device).train()
    theirs = copy.deepcopy(mine)
    g = graphed(mine, admit_after=1)
    for _ in range(4):
        x = torch.randn(5, 4, device=device)
        alike(g(x), theirs(x))
        alike(state(mine), state(theirs))
        assert g.last is not None
        assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.HOST_SYNC)


def test_a_recording_that_is_refused_half_way_has_updated_once(device: torch.device) -> None:
    mine = nn.BatchNorm1d(4).to(device).train()
    theirs = copy.deepcopy(mine)
    g = graphed(lambda x: (y := mine(x))[y > 0], admit_after=1)
    x = torch.randn(5, 4, device=device)
    y = theirs(x)
    alike(g(x), y[y > 0])
    alike(state(mine), state(theirs))


def test_eval_and_train_are_different_signatures(device: torch.device) -> None:
    mine = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.0)).to(device)
    theirs = copy.deepcopy(mine)
    g = graphed(mine, admit_after=1)
    for is_training in (True, False, True, False):
        x = torch.randn(5, 4, device=device)
        mine.train(is_training)
        theirs.train(is_training)
        alike(g(x), theirs(x))
        alike(state(mine), state(theirs))
    assert g.report().recordings == 2


def test_a_submodule_alone_in_train_mode_is_another_signature(device: torch.device) -> None:
    """What fine-tuning with frozen statistics does: one `.eval()` deep inside."""
    mine = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4))).to(device).train()
    theirs = copy.deepcopy(mine)
    g = graphed(mine, admit_after=1)
    for is_training in (True, False, True):
        x = torch.randn(5, 4, device=device)
        mine[1][0].train(is_training)
        theirs[1][0].train(is_training)
        alike(g(x), theirs(x))
        alike(state(mine), state(theirs))
