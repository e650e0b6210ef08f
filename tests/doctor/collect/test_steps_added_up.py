"""Steps are added up whole: their calls, the loop that they stand in, and who is in one."""

from __future__ import annotations

from typing import Any, cast

from ostinato.doctor.collect import steps as module
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.steps import Steps, _Seen


def added_up(*calls_ms: tuple[float, float]) -> dict[str, Any]:
    """Return what is made of calls of one callable, each from when to when."""
    notebook = Notebook()
    steps = Steps(notebook, cast(Any, None), ranges=False)
    steps._marks = _Seen(name="request", place=None, order=0)
    zero = notebook._zero_ns
    for began_ms, ended_ms in calls_ms:
        ns = (zero + round(began_ms * 1e6), zero + round(ended_ms * 1e6))
        steps._add_up(*ns)
        steps._time(steps._marks, *ns)
    return steps.fields()


def test_calls_and_the_loop_are_added_up() -> None:
    fields = added_up((0, 1), (10, 11), (20, 22))
    assert (fields["in_calls_us"], fields["loop_us"]) == (4e3, 22e3)
    assert fields["whole_us"] == 22e3


def test_an_idle_gap_is_in_the_loop_and_in_no_step() -> None:
    fields = added_up((0, 1), (10, 11), (900, 901))
    assert (fields["loop_us"], fields["whole_us"]) == (901e3, 12e3)


def test_steps_that_are_forgotten_stay_counted() -> None:
    calls = [(float(i), i + 0.5) for i in range(module._MOST_STEPS + 100)]
    fields = added_up(*calls)
    assert len(fields["steps"]) == module._MOST_STEPS
    assert fields["in_calls_us"] == 500.0 * len(calls)
    assert fields["whole_us"] == 1e3 * len(calls) - 500.0


def test_a_thread_is_inside_while_its_marked_block_runs() -> None:
    notebook = Notebook()
    steps = Steps(notebook, cast(Any, None), ranges=False)
    with steps.mark("request"):
        assert len(notebook.inside) == 1
    assert notebook.inside == set()
    assert len(notebook.stepping) == 1
