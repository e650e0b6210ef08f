"""torch warns of waits only while a step is looked at, and then in a mode that is put back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import FrameType

import pytest
import torch

from ostinato.doctor.collect import gates, torch_tells
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.torch_tells import TorchTells
from ostinato.doctor.pace import Pace

OFF, WARN, ERROR = 0, 1, 2


class Mode:
    """torch's mode, as a GPU's build keeps it."""

    def __init__(self) -> None:
        self.now = ERROR

    def set(self, mode: int | str) -> None:
        self.now = {"warn": WARN}.get(str(mode), mode)  # type: ignore[assignment]


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mode]:
    pretended = Mode()
    monkeypatch.setattr(torch._C, "_cuda_set_sync_debug_mode", pretended.set, raising=False)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", pretended.set)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: pretended.now)
    monkeypatch.setattr(torch_tells, "once_used", lambda act: act())
    yield pretended
    gates.be_inside(False)
    gates.begin()


def wait() -> None:
    """Warn as torch does."""
    warnings.warn("called a synchronizing CUDA operation (Triggered somewhere)", stacklevel=1)


def test_torch_warns_only_in_steps_that_are_looked_at(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "one_of", 8)
    heard: list[FrameType] = []
    notebook = Notebook()
    tells = TorchTells(notebook, heard.append)
    tells.start()
    assert (mode.now, tells.now) == (WARN, True)
    here, seen = notebook.here, set()
    notebook.stepping.add(here.ident)
    for _ in range(400):
        notebook.begin_step(here)
        assert tells.now is here.looks
        assert mode.now == (WARN if here.looks else ERROR)  # the program's own, where we pass over
        seen.add(here.looks)
        tells.hold()
        assert mode.now == OFF
        tells.go_on()
        assert mode.now == (WARN if here.looks else ERROR)
        count = len(heard)
        wait()
        assert len(heard) == count + here.looks
        here.end_step()
    assert seen == {True, False}
    tells.stop()
    assert (mode.now, tells.now) == (ERROR, False)
    with pytest.warns(UserWarning, match="synchronizing"):
        wait()


def test_it_warns_on_while_another_thread_looks(mode: Mode) -> None:
    notebook = Notebook()
    tells = TorchTells(notebook, lambda _: None)
    tells.start()
    notebook.stepping |= {1, 2}
    notebook.passing_over.add(1)
    notebook.turn_listeners[0]()
    assert (mode.now, tells.now) == (WARN, True)
    notebook.passing_over.add(2)
    notebook.turn_listeners[0]()
    assert (mode.now, tells.now) == (ERROR, False)
    tells.stop()
