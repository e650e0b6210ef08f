"""Waits are told apart by the line that waits, and counted by the steps that have any."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.watching import Choices, Watch

LIBRARY = """
def set_up(x):
    return bool(x.sum() > 1e9)

def is_done(x):
    return bool(x.sum() > 1e9)

def generate(model, x, steps):
    for _ in range(steps):
        set_up(x)
    for step in range(steps):
        model(x)
        if is_done(x):
            break
"""
QUIET = Choices(sample=False, ranges=False)


@pytest.fixture
def library(tmp_path: Path) -> ModuleType:
    """A package as it lies in an environment, with two lines that wait."""
    path = tmp_path / "site-packages" / "library.py"
    path.parent.mkdir()
    path.write_text(LIBRARY, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("library", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wait_is_at_the_line_of_the_library_that_has_it(library: ModuleType) -> None:
    with Watch(choices=QUIET) as watch, torch.inference_mode():
        library.generate(nn.Linear(2, 2), torch.ones(1, 2), 20)
    (first,) = diagnose(watch.evidence).findings
    assert first.place is not None
    assert first.place.path == __file__
    assert first.place.stack[-1].endswith("library.py:6 is_done")
    assert first.fact.startswith("each step would wait for the device once, in bool(tensor)")


class SettingUp(nn.Module):
    """Makes a table when it is first called, as a cache of keys and values does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.table: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.table:
            self.table = [value.item() for value in torch.ones(60)]
        return self.layer(x)


def test_many_waits_in_one_step_are_no_habit() -> None:
    with Watch(choices=QUIET) as watch:
        model = SettingUp()
        for _ in range(40):
            model(torch.ones(1, 2))
    (wait,) = watch.evidence.waits
    assert (wait.count, wait.steps) == (60, 1)
    assert diagnose(watch.evidence).findings == ()


def test_a_step_has_its_waits_until_the_next_begins() -> None:
    with Watch(choices=QUIET) as watch:
        model = nn.Linear(2, 2)
        for _ in range(10):
            with watch.step():
                out = model(torch.ones(1, 2))
            for _ in range(3):
                out.sum().item()
    (wait,) = watch.evidence.waits
    assert (wait.count, wait.between, wait.steps) == (30, 30, 10)


def test_a_script_module_has_the_name_that_it_was_written_with() -> None:
    with pytest.deprecated_call():
        model = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    with Watch(choices=QUIET) as watch:
        for _ in range(8):
            model(torch.ones(1, 2))
    assert watch.evidence.step_name == "Linear"
