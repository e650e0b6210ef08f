"""A run of the collector is measured by the time that it had a CPU, and not by the clock."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ostinato.doctor.collect import gc_pauses
from ostinato.doctor.collect.gc_pauses import GcPauses
from ostinato.doctor.interpreter_use import GcUse

MS = 1_000_000


class Notebook:
    """A step is under way; spans are kept."""

    here = SimpleNamespace(inside=True, quiet=False)
    steps_ended = 9

    def __init__(self) -> None:
        self.spans: list[float] = []

    def since_us(self, moment_ns: int) -> float:
        return moment_ns / 1e3

    def span(self, kind: str, text: str, began_us: float, us: float) -> None:
        self.spans.append(us)


def collected(monkeypatch: pytest.MonkeyPatch, *, clock_ms: int, cpu_ms: int) -> tuple[Any, Any]:
    """Let one run pass on made clocks; return its record and the notebook."""
    notebook = Notebook()
    pauses = GcPauses(cast(Any, notebook))
    for name, first, then in (
        ("perf_counter_ns", 5 * MS, (5 + clock_ms) * MS),
        ("thread_time_ns", 2 * MS, (2 + cpu_ms) * MS),
    ):
        monkeypatch.setattr(gc_pauses, name, iter((first, then)).__next__)
    pauses._hear("start", {"generation": 2})
    pauses._hear("stop", {"generation": 2, "collected": 3})
    (pause,) = pauses.fields()["gc_pauses"]
    return pause, notebook


def test_a_run_that_was_kept_from_the_cpu_took_what_it_worked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause, notebook = collected(monkeypatch, clock_ms=80, cpu_ms=3)
    assert (pause.us, pause.began_us, pause.generation, pause.collected) == (3e3, 5e3, 2, 3)
    assert pause.in_step
    assert notebook.spans == [3e3]


def test_a_run_that_did_hardly_anything_for_a_long_time_is_no_slow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause, notebook = collected(monkeypatch, clock_ms=80, cpu_ms=0)
    assert (pause.us, pause.place) == (0.0, None)
    assert notebook.spans == []


def uses(monkeypatch: pytest.MonkeyPatch, runs: int, *, ended: int, inside: bool = True) -> Any:
    """Let runs of 80 ms pass, of which 3 ms are on a CPU; return what is kept of them."""
    notebook = Notebook()
    notebook.steps_ended = ended
    monkeypatch.setattr(notebook, "here", SimpleNamespace(inside=inside, quiet=False))
    pauses = GcPauses(cast(Any, notebook))
    clock, cpu = count(5 * MS, 80 * MS), count(0, 3 * MS)
    monkeypatch.setattr(gc_pauses, "perf_counter_ns", clock.__next__)
    monkeypatch.setattr(gc_pauses, "thread_time_ns", cpu.__next__)
    for _ in range(runs):
        pauses._hear("start", {"generation": 2})
        pauses._hear("stop", {"generation": 2, "collected": 3})
    return pauses.fields()


def test_runs_are_counted_whole_though_only_the_latest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = uses(monkeypatch, gc_pauses._MOST + 5, ended=9)
    runs = gc_pauses._MOST + 5
    assert len(kept["gc_pauses"]) == gc_pauses._MOST

    assert kept["gc_use"] == GcUse(runs, runs * 80e3, runs, runs * 3e3)


def test_those_of_the_first_steps_are_a_cost_and_no_habit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uses(monkeypatch, 10, ended=0)["gc_use"] == GcUse(10, 800e3, 0, 0.0)


def test_those_between_steps_are_no_cost_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uses(monkeypatch, 10, ended=9, inside=False)["gc_use"] == GcUse()
