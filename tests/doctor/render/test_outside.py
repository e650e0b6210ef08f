"""What passes outside of the steps is told: how much of the time, and at which lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.doctor.activity import Step
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, Looks, Subject
from ostinato.doctor.finding import Place
from ostinato.doctor.interpreter_use import Gil, LineUse, ThreadUse
from ostinato.doctor.render.html import html_page
from ostinato.doctor.render.text import text
from ostinato.doctor.report import headline

LOAD = Place("/service/data.py", 7, function="Data.__getitem__", code="time.sleep(0.005)")
MODEL = Place("/service/app.py", 9, code="model(batch)")


def a_run(*, call_us: float, cycle_us: float, turn_us: float | None) -> Evidence:
    """Return a loop of 50 calls whose thread sleeps at a line between them."""
    between = LineUse(LOAD, 1 - call_us / cycle_us)
    main = ThreadUse(
        *("MainThread", 0.1, 0.0, 0.0),
        in_steps=True,
        busy=(LineUse(MODEL, 0.9),),
        outside=(between, LineUse(MODEL, 0.06)),
    )
    return Evidence(
        subject=Subject(seconds=2.0),
        step_name="Linear",
        steps_seen=50,
        steps=tuple(Step(i * cycle_us, call_us, turn_us) for i in range(50)),
        whole_us=50 * (turn_us or call_us),
        in_calls_us=50 * call_us,
        loop_us=49 * cycle_us + call_us,
        gil=Gil(90, 2e4, 0.0, 0.0, (main,)),
    )


LOADER = a_run(call_us=200.0, cycle_us=20e3, turn_us=20e3)


def test_a_loop_that_waits_for_its_data_is_told_so_with_the_line() -> None:
    words = text(diagnose(LOADER))
    verdict = "nothing was found in 50 steps of Linear, and 99% of the time passed outside of them"
    assert f"{verdict}, 99% at data.py:7 `time.sleep(0.005)`" in " ".join(words.split())
    assert "outside:  99% /service/data.py:7 `time.sleep(0.005)` in Data.__getitem__\n" in words
    assert words.count("app.py:9") == 1  # told as busy already
    page = html_page(diagnose(LOADER), LOADER)
    assert "Outside of the steps" in page
    assert "data.py:7" in page


@pytest.mark.parametrize("turn_us", [20e3, None])
def test_a_call_and_its_cycle_are_told_apart_whether_the_thread_lay_idle_or_not(
    turn_us: float | None,
) -> None:
    loop = a_run(call_us=200.0, cycle_us=20e3, turn_us=turn_us)
    words = "50 steps of Linear, 200 us in each call and 20.0 ms from one to the next, in 2.00 s"
    assert headline(diagnose(loop)) == words


def test_a_loop_of_its_calls_alone_says_nothing_of_what_is_outside() -> None:
    tight = a_run(call_us=900.0, cycle_us=1000.0, turn_us=1000.0)
    report = diagnose(tight)
    assert report.verdict == "nothing was found in 50 steps of Linear"
    assert headline(report) == "50 steps of Linear, 1.00 ms each, in 2.00 s"
    assert "outside" not in text(report)
    assert "Outside of the steps" not in html_page(report, tight)


@pytest.mark.parametrize(
    ("before_us", "after_us", "said"),
    [
        (1.2e6, 0.3e6, ", of which 1.20 s before the first step and 300 ms after the last"),
        (1.2e6, 0.01e6, ", of which 1.20 s before the first step"),
        (0.01e6, 0.3e6, ", of which 300 ms after the last"),
        (0.01e6, 0.01e6, ""),
        (None, None, ""),
    ],
)
def test_time_before_the_first_step_and_after_the_last_is_told(
    before_us: float | None, after_us: float | None, said: str
) -> None:
    run = replace(LOADER, before_us=before_us, after_us=after_us)
    report = diagnose(run)
    assert headline(report).endswith(f"in 2.00 s{said}")
    assert f"watched for <b>2.00 s</b>{said}<" in html_page(report, run)


def test_steps_that_were_passed_over_are_told() -> None:
    run = replace(LOADER, looks=Looks(steps=300, of=5000, one_of=24, us=1e4))
    said = (
        "300 of 5000 steps were looked at, 1 in 24 lately: more would take over 0.5% of their "
        "time; each stands for those passed over"
    )
    report = diagnose(run)
    assert said in " ".join(text(report).split())
    assert said in html_page(report, run)
    assert run.looks is not None
    for all_of_them in (replace(run.looks, one_of=1), replace(run.looks, of=300), None):
        report = diagnose(replace(run, looks=all_of_them))
        assert "looked" not in text(report) + html_page(report, run)


def test_an_evidence_that_nobody_added_up_says_nothing_either() -> None:
    report = diagnose(replace(LOADER, loop_us=0.0, in_calls_us=0.0))
    assert report.outside is None
    assert "outside" not in text(report)


def test_the_mean_is_told_where_a_few_steps_hold_most_of_the_time() -> None:
    steps = tuple(Step(i * 9e5, us, us) for i, us in enumerate([4e3] * 40 + [4e5] * 5))
    uneven = Evidence(step_name="M", steps_seen=45, steps=steps, whole_us=2.16e6)
    assert headline(diagnose(uneven)) == "45 steps of M, 4.00 ms each (48.0 ms a step in the mean)"


def test_one_idle_gap_among_turns_does_not_change_what_a_step_is() -> None:
    turns: list[float | None] = [20e3, 20e3, None, 20e3, None]
    steps = tuple(Step(i * 1e5, 100.0, turn) for i, turn in enumerate(turns))
    assert Evidence(steps=steps).step_us() == 20e3
    calls = tuple(Step(i * 1e5, 100.0, turn) for i, turn in enumerate([None, None, None, 20e3]))
    assert Evidence(steps=calls).step_us() == 100.0


@pytest.mark.parametrize(("hidden", "said"), [(0.34, True), (0.02, False)])
def test_lines_that_may_take_more_than_is_said_are_announced(hidden: float, said: bool) -> None:
    main = ThreadUse(
        *("MainThread", 0.9, 0.0, 0.0), in_steps=True, busy=(LineUse(MODEL, 0.9),), hidden=hidden
    )
    words = " ".join(text(diagnose(replace(LOADER, gil=Gil(90, 2e4, 0.0, 0.0, (main,))))).split())
    assert ("34% of the time that MainThread ran was told late" in words) is said
