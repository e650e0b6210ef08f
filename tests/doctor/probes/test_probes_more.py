"""Probes of steps, copies and words: the cases at the edges of each decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from doctor.probes.test_probes import (
    GPU,
    GRAPHED,
    IDLE,
    LINE,
    LINK,
    MEMORY,
    MIB,
    MODEL,
    NOTEBOOK,
    RECORDING,
    TINY,
    WINDOW,
    gil,
    growing,
    on,
)
from ostinato.doctor.activity import (
    Copy,
    LayoutCopy,
    LostGradient,
    SizedCopy,
    Wait,
    WaitKind,
)
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Place
from ostinato.doctor.graph_use import GraphUse, WordCount
from ostinato.doctor.host_evidence import Gpu, NumaNode
from ostinato.doctor.interpreter_use import GcPause, LockHeld, ThreadPools, ThreadUse

ITEM = Wait(
    "Tensor.item",
    WaitKind.SCALAR,
    LINE,
    count=60,
    inside=60,
    us=60 * 250.0,
    step_us=tuple(200.0 + n for n in range(60)),
    on_device=True,
)
EXPORT = replace(ITEM, op="Tensor.tolist", kind=WaitKind.EXPORT, inside=0, between=60)
COPY = LayoutCopy("contiguous", LINE, 180, 180 * MIB, us=180 * 30.0, feeds="attention")
TRIED = replace(COPY, with_copy_us=90.0, without_copy_us=50.0)
PAUSE = GcPause(2, 9e3, 2e3, 0, in_step=True)


def facts(evidence: Evidence) -> dict[str, str]:
    report = diagnose(evidence)
    assert report.problems == ()
    return {finding.code: finding.fact for finding in report.findings}


def waiting(*waits: Wait) -> Evidence:
    return replace(GPU, waits=waits)


def test_a_wait_on_a_gpu_costs_what_it_was_measured_to_cost() -> None:
    finding = diagnose(waiting(ITEM)).findings[0]
    assert finding.fact == "each step waits for the device once, in Tensor.item"
    assert finding.cost is not None
    assert (finding.cost.us_per_step, finding.cost.share) == (250.0, 0.25)
    assert finding.cost.kind is Basis.MEASURED
    # Of 200, 201, … 259 us.
    assert (finding.cost.each, finding.cost.median_us, finding.cost.spread_us) == (
        "wait",
        229.5,
        29.5,
    )


def test_a_wait_on_a_cpu_costs_what_one_costs_on_an_idle_gpu() -> None:
    finding = diagnose(waiting(replace(ITEM, on_device=False, us=60.0))).findings[0]
    assert "would wait for the device once" in finding.fact
    assert "on this CPU it takes 1.00 us" in finding.fact
    assert finding.cost is not None
    assert (finding.cost.us_per_step, finding.cost.kind) == (15.7, Basis.INFERRED)


def test_a_wait_that_nobody_could_time_is_inferred() -> None:
    hidden = replace(ITEM, op="a wait inside of torch", kind=WaitKind.SYNCHRONIZE, us=0.0)
    cost = diagnose(waiting(hidden)).findings[0].cost
    assert cost is not None
    assert (cost.us_per_step, cost.kind) == (15.7, Basis.INFERRED)


def test_several_lines_are_counted_together_and_the_dearest_is_named_first() -> None:
    cheap = replace(ITEM, op="bool(tensor)", place=Place("model.py", 9), us=60.0)
    finding = diagnose(waiting(cheap, ITEM)).findings[0]
    assert "twice, on 2 lines; once in Tensor.item" in finding.fact
    assert (finding.place, finding.others) == (LINE, (cheap.place,))


@pytest.mark.parametrize(
    "waits",
    [
        (),
        (EXPORT,),
        (replace(ITEM, inside=20, count=20),),
        (replace(ITEM, inside=0, between=20, count=20), EXPORT),
    ],
    ids=["none", "the-result", "now-and-then", "a-log-line-now-and-then"],
)
def test_waits_that_are_no_habit_are_not_reported(waits: tuple[Wait, ...]) -> None:
    assert facts(waiting(*waits)) == {}


@pytest.mark.parametrize(
    "waits",
    [(EXPORT, replace(EXPORT, op="Tensor.cpu")), (replace(EXPORT, between=120, count=120),)],
    ids=["two-lines", "twice-on-one-line"],
)
def test_a_result_that_is_handed_out_twice_is_reported(waits: tuple[Wait, ...]) -> None:
    assert "twice" in facts(waiting(*waits))["OST101"]


def test_few_steps_say_nothing_about_waits() -> None:
    assert facts(replace(waiting(replace(ITEM, inside=4)), steps_seen=4)) == {}


def test_waits_that_no_collector_looked_for_are_not_judged() -> None:
    assert facts(replace(waiting(ITEM), collected=("steps",))) == {}


def test_many_waits_without_a_step_are_answered_with_how_to_mark_one() -> None:
    nowhere = replace(waiting(ITEM), steps=(), steps_seen=0, step_name="")
    (abstention,) = diagnose(nowhere).abstentions
    assert "60 times" in abstention.why
    assert "watch.step()" in abstention.settles_it
    few = replace(nowhere, waits=(replace(ITEM, count=3),))
    assert diagnose(few).abstentions == ()


def test_a_copy_that_was_tried_both_ways_costs_the_difference() -> None:
    finding = diagnose(replace(GPU, layout_copies=(TRIED,))).findings[0]
    assert "3 copies" in finding.fact
    assert "90.0 us with the copy and 50.0 us without" in finding.fact
    assert finding.cost is not None
    assert (finding.cost.us_per_step, finding.cost.kind) == (120.0, Basis.MEASURED)


def test_a_copy_that_pays_for_itself_is_left_alone() -> None:
    report = diagnose(replace(GPU, layout_copies=(replace(TRIED, without_copy_us=140.0),)))
    assert report.findings == ()
    assert "leave it" in {a.code: a.settles_it for a in report.abstentions}["OST402"]


def test_a_copy_that_nobody_tried_counts_from_two_per_cent_of_the_step() -> None:
    finding = diagnose(replace(GPU, layout_copies=(COPY,))).findings[0]
    assert finding.cost is not None
    assert finding.cost.kind is Basis.INFERRED
    assert facts(replace(GPU, layout_copies=(replace(COPY, us=60.0),))) == {}


def test_a_copy_that_does_not_go_into_attention_is_not_this_finding() -> None:
    assert facts(replace(GPU, layout_copies=(replace(TRIED, feeds=""),))) == {}


def test_a_lost_gradient_names_where_the_number_comes_back() -> None:
    lost = LostGradient("float(tensor)", LINE, replace(LINE, line=91), 12)
    fact = facts(replace(GPU, lost_gradients=(lost,)))["OST105"]
    assert fact.startswith("float(tensor) reads a number that goes on into a loss, 12 times")
    assert "it comes back at model.py:91" in fact
    here = replace(lost, used=LINE, certain=False)
    fact = facts(replace(GPU, lost_gradients=(here,)))["OST105"]
    assert "most likely" in fact
    assert "comes back" not in fact


@pytest.mark.parametrize(
    ("change", "graphs"),
    [
        ({"with_grad": 60}, ()),
        ({"calls": 20}, ()),
        ({"captured": "graphed"}, ()),
        ({"compiled": True}, ()),
        ({}, (GraphUse("graph", kind="cuda-graph", calls=60, replays=60),)),
        ({}, (GraphUse("Model", calls=60),)),
    ],
    ids=["training", "few-calls", "graphed", "compiled", "by-hand", "wrapped"],
)
def test_what_cannot_or_need_not_be_recorded_is_not_never_captured(
    change: dict[str, object], graphs: tuple[GraphUse, ...]
) -> None:
    model = replace(MODEL, **change)
    assert "OST201" not in facts(replace(GPU, profile=IDLE, callables=(model,), graphs=graphs))


@pytest.mark.parametrize(
    "profile",
    [
        replace(TINY, short_us=2_000),
        replace(TINY, short_kernels=300),
        replace(TINY, busy_us=3_000, short_us=2_500),
        replace(WINDOW, steps=100, short_kernels=900, short_us=8_000),
    ],
    ids=["little-time", "few-of-them", "idle-anyway", "few-a-step"],
)
def test_small_kernels_that_do_not_matter_are_not_reported(profile: object) -> None:
    assert "OST103" not in facts(replace(GPU, profile=profile))


def test_copies_say_their_rate_and_that_memory_is_not_pinned() -> None:
    copy = Copy("h2d", LINE, 60, 600 * MIB, us=60 * 400.0, pinned=False)
    fact = facts(replace(GPU, copies=(copy,)))["OST104"]
    assert "at 26.2 GB/s, from memory that is not pinned" in fact
    assert "grows" not in fact
    flat = tuple(SizedCopy(n, 20, 200 * MIB, 8e3) for n in (5, 10, 15))
    same = replace(copy, pinned=True, by_size=flat)
    assert "grows" not in facts(replace(GPU, copies=(same,)))["OST104"]


def slow(number: int, eager_us: float, replay_us: float) -> Evidence:
    made = replace(RECORDING, eager_us=eager_us, replay_us=replay_us)
    return replace(GPU, graphs=(replace(GRAPHED, recordings=(made,) * number),))


@pytest.mark.parametrize(
    ("number", "eager_us", "replay_us"), [(3, 90.0, 89.0), (1, 5e3, 4.9e3), (2, 1e3, 1.2e3)]
)
def test_replays_that_save_nothing_are_found_where_the_timings_can_tell(
    number: int, eager_us: float, replay_us: float
) -> None:
    report = diagnose(slow(number, eager_us, replay_us))
    assert "OST207" in {each.code for each in report.findings}
    assert "OST207" not in {each.code for each in report.abstentions}


@pytest.mark.parametrize(
    ("number", "eager_us", "replay_us"), [(1, 90.0, 89.0), (2, 90.0, 120.0), (2, 1.1e3, 999.0)]
)
def test_a_few_short_timings_leave_it_open_and_say_what_would_tell(
    number: int, eager_us: float, replay_us: float
) -> None:
    report = diagnose(slow(number, eager_us, replay_us))
    assert "OST207" not in {each.code for each in report.findings}
    (open_,) = [each for each in report.abstentions if each.code == "OST207"]
    assert f"in {number} recording" in open_.why
    assert "a hundred calls" in open_.settles_it


def test_a_short_timing_that_saves_a_tenth_leaves_nothing_open() -> None:
    report = diagnose(slow(1, 90.0, 50.0))
    assert "OST207" not in {each.code for each in (*report.findings, *report.abstentions)}


def test_calls_that_run_eagerly_as_unprofitable_are_said_to_be() -> None:
    use = replace(GRAPHED, replays=10, eager=(WordCount("unprofitable", 390),))
    assert "390 of 400 calls" in facts(replace(GPU, graphs=(use,)))["OST207"]
    assert "OST206" not in facts(replace(GPU, graphs=(use,)))
    few = replace(use, calls=20, replays=0, eager=(WordCount("unprofitable", 20),))
    assert facts(replace(GPU, graphs=(few,))) == {}


def test_a_lock_held_over_an_await_is_reported_though_nobody_waited() -> None:
    lock = LockHeld("await", "await", LINE, LINE, LINE, 5, 10.0)
    assert "across an await, 5 times" in facts(replace(GPU, locks=(lock,)))["OST502"]


def test_waiting_without_anybody_who_holds_the_gil_is_not_contention() -> None:
    lone = gil(0.5, ThreadUse("MainThread", 0.5, 0.5, 5e5), ThreadUse("other", 0.0, 0.0, 0.0))
    assert facts(replace(GPU, gil=lone)) == {}
    strangers = gil(0.5, ThreadUse("a", 0.0, 0.4, 5e5), ThreadUse("b", 0.0, 0.4, 4e5))
    assert facts(replace(GPU, gil=strangers)) == {}


@pytest.mark.parametrize(
    "pauses",
    [(PAUSE,), tuple(replace(PAUSE, us=300.0) for _ in range(40)), (PAUSE, PAUSE)],
    ids=["once", "short", "twice"],
)
def test_a_collection_now_and_then_is_not_reported(pauses: tuple[GcPause, ...]) -> None:
    assert facts(replace(GPU, gc_pauses=pauses)) == {}


def test_one_long_collection_is_somebodys_slow_request() -> None:
    assert "for up to 40.0 ms" in facts(replace(GPU, gc_pauses=(replace(PAUSE, us=4e4),)))["OST504"]


def test_threads_say_whether_they_lacked_cpus_or_quota() -> None:
    pools = ThreadPools(2.0, 8, 1, python_threads=3, runnable_share=0.05, throttled_share=0.4)
    fact = facts(replace(GPU, threads=pools))["OST505"]
    assert fact.startswith("3 Python threads with 8 torch threads each want 24 CPUs, and 2 are")
    assert "40% of the cgroup's periods" in fact
    assert "ready" not in fact


def test_a_process_that_waits_for_its_workers_wants_no_cpu() -> None:
    starved = ThreadPools(2.0, 1, 1, processes=3, runnable_share=2.83)
    parent = replace(GPU, steps=(), steps_seen=0, threads=starved)
    assert facts(parent) == {}
    assert "OST505" not in {each.code for each in diagnose(parent).abstentions}
    wide = replace(parent, threads=replace(starved, torch_threads=2))
    assert facts(wide) == {}  # the workers may have set another number of threads
    untold = {each.code: each for each in diagnose(wide).abstentions}["OST505"]
    assert untold.why.startswith("2 processes compute while this one, with 2 torch threads, waits")
    assert "in a worker" in untold.settles_it


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        (
            ThreadPools(2.0, 1, 1, processes=3, runnable_share=2.83),
            "3 processes with one torch thread each may use 2 CPUs, and threads stood ready",
        ),
        (
            ThreadPools(0.5, 1, 1, throttled_share=0.4),
            "a process with one torch thread may use 0.5 CPUs, and 40% of the cgroup's periods",
        ),
    ],
    ids=["workers", "quota"],
)
def test_one_thread_in_each_process_is_no_pool_too_large(pools: ThreadPools, words: str) -> None:
    report = diagnose(replace(GPU, steps_seen=64, threads=pools))
    assert "OST505" not in {each.code for each in report.findings}
    untold = {each.code: each for each in report.abstentions}["OST505"]
    assert untold.why.startswith(words)
    assert "as many workers as CPUs" in untold.settles_it


@pytest.mark.parametrize(
    "allocated",
    [
        [n * MIB // 8 for n in range(40)],
        [(n + (n % 2) * 40) * 8 * MIB for n in range(40)],
        [min(n, 25) * 64 * MIB + n * MIB for n in range(40)],
    ],
    ids=["little", "up-and-down", "slowing-down"],
)
def test_memory_that_grows_little_or_less_and_less_is_no_leak(allocated: list[int]) -> None:
    memory = replace(MEMORY, largest_free_bytes=20 << 30, growth=growing(*allocated))
    assert facts(replace(GPU, allocator=memory)) == {}


def test_a_failed_allocation_tells_who_holds_the_memory() -> None:
    memory = replace(MEMORY, largest_free_bytes=20 << 30, ooms=1, other_processes_bytes=3 << 30)
    fact = facts(replace(GPU, allocator=memory))["OST603"]
    assert fact.startswith("an allocation failed once; tensors hold 60.0 GiB, the cache 20.0 GiB")
    assert "other processes 3.0 GiB" in fact


def test_splinters_say_what_a_collection_changed() -> None:
    memory = replace(MEMORY, after_gc_free_bytes=1 << 30, retries=2)
    fact = facts(replace(GPU, allocator=memory))["OST601"]
    assert "the program's largest tensor has 2.0 GiB" in fact
    assert "after a collection 1.0 GiB are free; the allocator had to retry 2 times" in fact


def test_threads_on_another_node_are_part_of_the_fact() -> None:
    nodes = (
        NumaNode(0, (0, 1), process_bytes=9 << 30),
        NumaNode(1, (2, 3), process_bytes=1 << 30),
    )
    evidence = on(Gpu(0, "H200", numa_node=1), *nodes)
    assert evidence.host is not None
    ran = replace(evidence, host=replace(evidence.host, ran_on=(0, 1, 2)))
    assert "seen on 2 CPUs of other nodes" in facts(ran)["OST701"]
    assert "seen on" not in facts(evidence)["OST701"]


def test_a_full_link_that_idles_is_not_asked_about() -> None:
    evidence = on(Gpu(0, "H200", link=replace(LINK, under_load=False)))
    assert diagnose(evidence).abstentions == ()


def test_a_slow_link_says_what_is_above_it_and_what_was_sent_again() -> None:
    link = replace(
        LINK, h2d_gbs=12.0, d2h_gbs=12.0, upstream="the bridge is x4", replays_under_load=40
    )
    fact = facts(on(Gpu(0, "H200", link=link)))["OST702"]
    assert "the bridge is x4; 40 packets were sent again" in fact


def test_several_other_processes_are_counted() -> None:
    evidence = on(Gpu(0, "H200", processes=(NOTEBOOK, NOTEBOOK, NOTEBOOK), mps=False))
    why = {each.code: each.why for each in diagnose(evidence).abstentions}["OST703"]
    assert why.startswith("python (7) and 2 more have a context")
