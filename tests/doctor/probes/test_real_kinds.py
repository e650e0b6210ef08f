"""What real programs taught the probes: each case was first a wrong word in a report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.doctor.activity import Step, Wait, WaitKind
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, Subject
from ostinato.doctor.finding import Finding, Place
from ostinato.doctor.interpreter_use import Gil, LineUse, LockHeld, ThreadUse
from ostinato.doctor.render.html import html_page
from ostinato.doctor.render.text import text

LINE = Place("/service/app.py", 7, code="model(x)")
CPU = Evidence(
    subject=Subject(device="cpu", seconds=10.0),
    collected=("steps", "waits", "gil", "locks"),
    step_name="Model",
    steps_seen=40,
    steps=tuple(Step(1000.0 * n, 500.0, 1000.0, "worker") for n in range(40)),
)


def only(evidence: Evidence) -> Finding:
    (finding,) = diagnose(evidence).findings
    return finding


def test_threads_of_one_name_keep_each_other_from_the_gil() -> None:
    first = ThreadUse("worker", 0.4, 0.5, 5e6, place=LINE)
    second = ThreadUse("worker", 0.5, 0.4, 4e6, place=replace(LINE, line=9))
    idle = ThreadUse("MainThread", 0.15, 0.0, 0.0, place=replace(LINE, line=1))
    found = only(replace(CPU, gil=Gil(100, 2e4, 0.5, 0.0, (idle, first, second))))
    assert "while another worker holds it" in found.fact
    assert found.place == replace(LINE, line=9)


def test_a_thread_that_only_loaded_the_model_holds_nothing_from_the_steps() -> None:
    waiter = ThreadUse("worker", 0.4, 0.5, 5e6, place=LINE, samples=900)
    nine, two = replace(LINE, line=9), replace(LINE, line=2)
    holder = ThreadUse("worker", 0.5, 0.0, 0.0, place=nine, samples=900, holds=300)
    loader = ThreadUse("loader", 1.0, 1.0, 3e4, place=two, samples=3, holds=1)
    found = only(replace(CPU, gil=Gil(100, 2e4, 0.5, 0.0, (waiter, holder, loader))))
    assert "while another worker holds it" in found.fact
    assert "more thread" not in found.fact


def test_threads_that_lack_cpus_leave_it_open_whether_they_would_wait_for_the_gil() -> None:
    one, two = (ThreadUse(n, 0.5, 0.0, 0.0, samples=20, ready=0.7) for n in ("one", "two"))
    report = diagnose(replace(CPU, gil=Gil(8, 2e4, 0.0, 0.0, (one, two))))
    assert report.findings == ()
    (open_,) = [each for each in report.abstentions if each.code == "OST501"]
    assert "2 threads stood ready without a CPU for up to 70% of the time" in open_.why
    assert "CPUs to spare" in open_.settles_it


@pytest.mark.parametrize(("runs", "ready"), [(0.5, 0.2), (0.05, 0.7)])
def test_threads_with_cpus_and_threads_that_hardly_run_leave_nothing_open(
    runs: float, ready: float
) -> None:
    one, two = (ThreadUse(n, runs, 0.0, 0.0, samples=20, ready=ready) for n in ("one", "two"))
    report = diagnose(replace(CPU, gil=Gil(90, 2e4, 0.0, 0.0, (one, two))))
    assert "OST501" not in {each.code for each in report.abstentions}


def test_a_read_under_a_lock_waits_for_no_device_where_there_is_none() -> None:
    held = LockHeld("device", "Tensor.tolist", LINE, LINE, LINE, 600, 1e3, 200, 4e7)
    found = only(replace(CPU, locks=(held,)))
    assert found.fact.startswith("a lock is held across what would be a wait for the device")
    on_gpu = only(replace(CPU, subject=replace(CPU.subject, device="cuda"), locks=(held,)))
    assert on_gpu.fact.startswith("a lock is held across a wait for the device")


def test_several_threads_in_line_are_no_share_of_the_time_watched() -> None:
    held = LockHeld("device", "Tensor.tolist", LINE, LINE, LINE, 600, 1e3, 200, 4e7)
    cost = only(replace(CPU, locks=(held,))).cost
    assert cost is not None
    assert (cost.us_per_step, cost.share) == (2e5, None)


def test_a_wait_in_transformers_loop_has_a_remedy_that_its_caller_can_take() -> None:
    inner = "/venv/site-packages/transformers/generation/utils.py:10 Stop.__call__"
    place = replace(LINE, stack=("/service/app.py:7 main", inner))
    wait = Wait("bool(tensor)", WaitKind.SCALAR, place, 40, between=40, steps=40)
    assert "ostinato.accelerate(model)" in only(replace(CPU, waits=(wait,))).remedies[0].what
    own = only(replace(CPU, waits=(replace(wait, place=LINE),)))
    assert not any("accelerate" in remedy.what for remedy in own.remedies)


def test_the_report_says_where_the_time_of_the_steps_goes() -> None:
    deep = Place("/venv/site-packages/lib/model.py", 3, function="Layer.forward", code="x @ w")
    lines = (LineUse(deep, 0.62), LineUse(LINE, 0.3), LineUse(replace(LINE, line=8), 0.01))
    worker = ThreadUse("worker", 0.9, 0.0, 0.0, in_steps=True, busy=lines)
    loading = ThreadUse("MainThread", 1.0, 0.0, 0.0, busy=(LineUse(replace(LINE, line=2), 1.0),))
    evidence = replace(CPU, gil=Gil(100, 2e4, 0.0, 0.0, (loading, worker)))
    report = diagnose(evidence)
    words = text(report)
    assert "busy at:  62% lib/model.py:3 `x @ w` in Layer.forward\n" in words
    assert "30% /service/app.py:7 `model(x)`" in words
    assert ":8" not in words
    assert ":2" not in words
    page = html_page(report, evidence)
    assert "lib/model.py:3" in page
    assert "width:62%" in page
