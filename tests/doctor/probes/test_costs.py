"""A cost a step is a part of the step, by the same clock, or is said to lie beside the steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.doctor.activity import Copy, Step, Wait, WaitKind
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, Subject
from ostinato.doctor.finding import Basis, Cost, Finding, Place
from ostinato.doctor.graph_use import CompileUse, GraphBreak
from ostinato.doctor.interpreter_use import GcPause, GcUse, Gil, ThreadUse
from ostinato.doctor.probe import cost_in_steps, cost_words

LINE = Place("/service/app.py", 7, code="model(x)")
TIMES = st.floats(0.0, 1e7)


def steps_of(times: list[float], gap_us: float = 0.0) -> Evidence:
    """Return an evidence of steps that lasted so long."""
    began, steps = 0.0, []
    for us in times:
        steps.append(Step(began, us, us + gap_us))
        began += us + gap_us
    return Evidence(
        subject=Subject(device="cuda", seconds=began / 1e6),
        collected=("steps", "waits"),
        step_name="Model",
        steps_seen=len(times),
        steps=tuple(steps),
        whole_us=began,
        in_calls_us=sum(times),
        loop_us=began,
    )


def found(evidence: Evidence) -> list[Finding]:
    report = diagnose(evidence)
    assert report.problems == ()
    return list(report.findings)


@given(
    times=st.lists(st.floats(1.0, 1e7), min_size=8, max_size=40), each=st.lists(TIMES, min_size=6)
)
def test_no_measured_cost_is_more_than_the_steps_it_lies_in(
    times: list[float], each: list[float]
) -> None:
    evidence = steps_of(times)
    count = len(times)
    wait = Wait("Tensor.item", WaitKind.SCALAR, LINE, count, count, steps=count, us=each[0])
    evidence = replace(
        evidence,
        waits=(replace(wait, on_device=True),),
        gc_pauses=(GcPause(2, evidence.steps[-1].began_us, each[1], 0, in_step=True),),
        gc_use=GcUse(count, each[2], count, each[2]),
        gil=Gil(
            99,
            2e4,
            0.5,
            0.0,
            (
                ThreadUse("MainThread", 0.4, 0.5, each[3], in_steps=True),
                ThreadUse("worker", 0.9, 0.0, 0.0),
            ),
        ),
        copies=(Copy("h2d", LINE, count, 1 << 30, each[4], pinned=False),),
        compile=CompileUse(breaks=(GraphBreak("a print", LINE, 1, us_per_step=each[5]),)),
    )
    mean_us = sum(times) / count
    for finding in found(evidence):
        cost = finding.cost
        if cost is None or cost.per != "step" or cost.kind is not Basis.MEASURED:
            continue
        assert cost.us_per_step is not None
        if cost.beside:
            assert (cost.share, cost.us_per_step > mean_us) == (None, True)
        else:
            whole_us = (mean_us, evidence.step_us() or 0.0)
            assert any(cost.share == pytest.approx(cost.us_per_step / us) for us in whole_us)
            assert cost.us_per_step <= max(whole_us) * (1 + 1e-6)


def test_a_few_long_steps_hold_the_cost_and_it_is_a_share_of_all_of_them() -> None:
    evidence = steps_of([4e3] * 95 + [140e3] * 5)
    assert (evidence.step_us(), evidence.mean_step_us()) == (4e3, 10_800.0)
    cost = cost_in_steps(evidence, 5 * 135e3)  # more than the usual step
    assert cost is not None
    assert (cost.us_per_step, cost.share, cost.beside) == (6750.0, 0.625, False)


def test_what_a_few_steps_bear_is_no_share_of_the_usual_one() -> None:
    evidence = replace(steps_of([4e3] * 95 + [140e3] * 5), gc_use=GcUse(5, 378e3, 5, 378e3))
    pause = GcPause(2, evidence.steps[-1].began_us, 70e3, 0, in_step=True)
    (finding,) = found(replace(evidence, gc_pauses=(pause,)))
    assert finding.cost is not None
    assert (finding.cost.us_per_step, finding.cost.share) == (3780.0, pytest.approx(0.35))


def test_what_took_longer_than_all_steps_is_said_to_lie_beside_them() -> None:
    cost = cost_in_steps(steps_of([100.0] * 10), 5e3)
    assert cost == Cost(500.0, None, steps=10, beside=True)
    assert cost_words(cost) == "500 us a step, part of it beside the steps; measured, 10 steps"


def test_runs_of_the_collector_are_counted_whole_and_by_the_clock_of_the_steps() -> None:
    kept = tuple(GcPause(0, 50e3 + i, 20.0, 0, in_step=True) for i in range(2000))
    long = GcPause(2, 60e3, 30e3, 0, in_step=True, place=LINE)
    evidence = replace(
        steps_of([10e3] * 100), gc_pauses=(*kept, long), gc_use=GcUse(5712, 700e3, 12, 600e3)
    )
    (finding,) = found(evidence)
    assert finding.fact.startswith("the garbage collector ran 5712 times in the middle of steps")
    assert finding.cost is not None
    assert (finding.cost.us_per_step, finding.cost.share) == (7e3, 0.7)


def test_waits_while_a_program_loads_are_no_cost_of_its_steps() -> None:
    wait = Wait(
        "Tensor.item", WaitKind.SCALAR, LINE, 40, inside=10, steps=10, us=8e3, on_device=True
    )
    (finding,) = found(replace(steps_of([1e3] * 10), waits=(wait,)))
    assert finding.cost is not None
    assert finding.cost.us_per_step == 200.0


def test_the_first_call_of_an_operation_is_no_measure_of_the_others() -> None:
    wait = Wait(
        "nonzero", WaitKind.SHAPE, LINE, 9, inside=9, steps=9, us=9008.0, step_us=(9e3, *[1.0] * 8)
    )
    (finding,) = found(replace(steps_of([100.0] * 9), waits=(wait,)))
    assert "on this CPU it takes 1.00 us" in finding.fact
