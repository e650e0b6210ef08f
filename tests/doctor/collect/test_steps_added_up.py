"""Steps are added up whole: their calls, the loop that they stand in, and who is in one."""

from __future__ import annotations

import threading
from typing import Any, cast

from ostinato.doctor.collect import steps as module
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.steps import Steps, _Seen

NOW_US = 950e3


def added_up(*calls_ms: tuple[float, float]) -> dict[str, Any]:
    """Return what is made of calls of one callable, each from when to when."""
    notebook = Notebook()
    steps = Steps(notebook, cast(Any, None), ranges=False)
    steps._marks = _Seen(name="request", place=None, order=0)
    zero = notebook._zero_ns
    cast(Any, notebook).now_us = lambda: NOW_US
    for began_ms, ended_ms in calls_ms:
        ns = (zero + round(began_ms * 1e6), zero + round(ended_ms * 1e6))
        steps._marks.later.append((*ns, threading.get_ident()))
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


def test_time_before_the_first_step_and_after_the_last_is_known() -> None:
    fields = added_up((3, 4), (10, 12))
    assert (fields["before_us"], fields["after_us"]) == (3e3, NOW_US - 12e3)
    assert "before_us" not in added_up()
    notebook = Notebook()
    cast(Any, notebook).now_us = lambda: NOW_US
    ms = [notebook._zero_ns + 10**6 * i for i in range(9)]
    steps = Steps(notebook, cast(Any, None), ranges=False)
    of_two_threads = steps._before_and_after([(ms[3], ms[5]), (ms[1], ms[8])])
    assert of_two_threads == {"before_us": 1e3, "after_us": NOW_US - 8e3}
    assert steps._before_and_after([(ms[1], ms[2]), (ms[3], ms[5])])["before_us"] == 1e3
