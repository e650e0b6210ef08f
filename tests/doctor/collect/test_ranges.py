"""NVTX ranges: what a profiler is told of steps, recordings and replays.

NVTX itself comes with a CUDA build alone; what torch would hand it is kept here.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ostinato import doctor, graphed
from ostinato.doctor.collect import recordings, steps
from ostinato.doctor.watching import Choices, Watch


class Told:
    """Ranges and marks, in the order in which they came."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def rangePushA(self, words: str) -> None:  # noqa: N802 - as NVTX has it
        self.words.append(f"( {words}")

    def rangePop(self) -> None:  # noqa: N802
        self.words.append(")")

    def markA(self, words: str) -> None:  # noqa: N802
        self.words.append(words)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    for module in (steps, recordings):
        monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", ranges := Told())
    return ranges


def watch(*, ranges: bool = True) -> Watch:
    return Watch(choices=Choices(ranges=ranges, sample=False))


def test_a_step_is_the_range_of_the_outermost_call(told: Told) -> None:
    with watch():
        nn.Sequential(nn.Linear(2, 2), nn.ReLU())(torch.ones(1, 2))
    assert told.words == ["( step Sequential", ")"]


def test_a_marked_step_holds_the_calls_in_it_and_bears_its_own_name(told: Told) -> None:
    with watch(), doctor.step("request é"):
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert told.words == ["( step request é", ")"]


def test_a_range_ends_where_the_call_raises(told: Told) -> None:
    with watch():
        with pytest.raises(RuntimeError):
            nn.Linear(2, 2)(torch.ones(1, 3))
        with pytest.raises(KeyError), doctor.step("odd"):
            raise KeyError
    assert told.words == ["( step Linear", ")", "( step odd", ")"]


def test_recordings_and_replays_are_marked_by_the_name_of_their_function(told: Told) -> None:
    @graphed
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.ones(2)
    with watch():
        for _ in range(4):
            double(x)
    marks = [words for words in told.words if words.endswith("double") and words[0] != "("]
    assert marks[0].startswith("record ")
    assert marks[-1].startswith("replay ")
    double.close()


def test_names_that_are_no_text_break_no_step(told: Told) -> None:
    with watch(), doctor.step("half \ud800 a character"):
        pass
    assert told.words == ["( step half ? a character", ")"]


def test_without_the_choice_nothing_is_told(told: Told) -> None:
    with watch(ranges=False), doctor.step():
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert told.words == []
