"""Probes: each fires on evidence of its fault, and stays quiet on what only looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.doctor.activity import Callable_, Copy, Profile, SignatureUse, SizedCopy, Step
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, Subject
from ostinato.doctor.finding import Basis, Place
from ostinato.doctor.graph_use import (
    AmpSwitch,
    AttentionUse,
    BackendTime,
    CompileUse,
    GraphBreak,
    GraphUse,
    Recompile,
    RecordingUse,
    SkippedCudagraphs,
    WordCount,
)
from ostinato.doctor.host_evidence import (
    Clocks,
    Gpu,
    GpuProcess,
    HostEvidence,
    Link,
    NumaNode,
    Switching,
)
from ostinato.doctor.interpreter_use import (
    GcPause,
    Gil,
    LockHeld,
    LoopBlock,
    ThreadPools,
    ThreadUse,
)
from ostinato.doctor.memory_use import AllocatorUse, MemoryPoint, PoolUse

GIB = 1 << 30
MIB = 1 << 20
LINE = Place("model.py", 88, code="q, k, v = self.split(x)")
STEPS = tuple(Step(began_us=i * 1000.0, us=900.0, turn_us=1000.0) for i in range(60))
GPU = Evidence(
    subject=Subject(device="cuda", seconds=1.0, capability="9.0"),
    collected=("steps", "waits"),
    step_name="Model",
    steps_seen=60,
    steps=STEPS,
)
WINDOW = Profile(
    steps=10,
    wall_us=10_000,
    busy_us=9_000,
    kernels=1_000,
    launches=1_000,
    graph_launches=0,
    launch_us=3_000,
    wait_us=6_000,
)
IDLE = replace(WINDOW, busy_us=2_000, wait_us=100)
TINY = replace(WINDOW, short_kernels=900, short_us=6_000, launches=40, graph_launches=40)
MODEL = Callable_(
    "Model", LINE, calls=60, us=50e3, signatures=(SignatureUse("int64[1, 1]", (1, 1), 60),)
)
MEMORY = AllocatorUse(
    device="H200",
    total_bytes=140 * GIB,
    device_free_bytes=60 * GIB,
    allocated_bytes=60 * GIB,
    reserved_bytes=80 * GIB,
    peak_allocated_bytes=70 * GIB,
    free_bytes=20 * GIB,
    largest_free_bytes=GIB,
    largest_request_bytes=2 * GIB,
    inactive_blocks=700,
)
ATTENTION = AttentionUse(
    place=LINE,
    count=60,
    query=(1, 8, 512, 64),
    key=(1, 8, 512, 64),
    value_size=64,
    dtype="float32",
    device="cuda",
    capability="9.0",
    backend="math",
)
GRAPHED = GraphUse("Model", LINE, calls=400, replays=380, captures=2, build_us=40e3)
RECORDING = RecordingUse("Model#1", "int64[1, 1]", hits=380, eager_us=900.0, replay_us=100.0)
LINK = Link(5, 16, 5, 16, under_load=True, h2d_gbs=52.0, d2h_gbs=53.0)
CLOCKS = Clocks(sm_mhz=1980, max_sm_mhz=1980, under_load=True)
NOTEBOOK = GpuProcess(pid=7, name="python", busy_share=0.4)


def growing(*allocated: int) -> tuple[MemoryPoint, ...]:
    return tuple(MemoryPoint(step, n, n) for step, n in enumerate(allocated))


def on(gpu: Gpu, *nodes: NumaNode, switching: Switching | None = None) -> Evidence:
    host = HostEvidence(gpus=(gpu,), nodes=nodes, switching=switching)
    return Evidence(source="host", collected=("host",), host=host)


def gil(contended: float, *threads: ThreadUse) -> Gil:
    return Gil(samples=100, interval_us=1e4, contended=contended, late_us=50.0, threads=threads)


def churning(texts: list[str], sizes: list[tuple[int, ...]], use: GraphUse | None) -> Evidence:
    signatures = tuple(SignatureUse(t, s, 1) for t, s in zip(texts, sizes, strict=True))
    called = Callable_("Model", LINE, calls=len(texts), us=1e5, signatures=signatures)
    return replace(GPU, callables=(called,), graphs=(use,) if use else ())


LENGTHS = churning(
    [f"int64[1, {n}]" for n in range(1, 51)],
    [(1, n) for n in range(1, 51)],
    replace(GRAPHED, calls=50, replays=0),
)
POSITIONS = churning(
    [f"int64[1, 1]; {n}" for n in range(50)],
    [(1, 1)] * 50,
    replace(GRAPHED, calls=50, replays=0),
)
AWAY = (NumaNode(0, (0, 1), process_bytes=9 * GIB), NumaNode(1, (2, 3), process_bytes=GIB))
JITTER = Switching(
    latency_us=(3.0, 3.1, 3.0, 8.0, 7.9, 8.2, 3.1, 8.1), switches=(1, 1, 0, 9, 8, 9, 1, 9)
)
STEADY = replace(JITTER, latency_us=(3.0, 8.0, 3.0, 3.1, 8.0, 3.0, 3.1, 3.0))

FIRES = {
    "launch-bound": ("OST102", replace(GPU, profile=IDLE), "idles 80%"),
    "tiny-kernels": ("OST103", replace(GPU, profile=TINY), "90 of 100 kernels a step"),
    "copies-in-the-profile": (
        "OST104",
        replace(GPU, profile=replace(WINDOW, copy_us=4_000, copy_bytes=100 * MIB)),
        "moves 10.0 MiB",
    ),
    "copies-that-grow": (
        "OST104",
        replace(
            GPU,
            copies=(
                Copy(
                    "h2d",
                    LINE,
                    60,
                    60 * 10 * MIB,
                    30e3,
                    pinned=False,
                    by_size=tuple(SizedCopy(n, 20, 20 * n * MIB, 1e4) for n in (5, 10, 15)),
                ),
            ),
        ),
        "grows by 1.0 MiB with each row",
    ),
    "never-captured": ("OST201", replace(GPU, profile=IDLE, callables=(MODEL,)), "never recorded"),
    "lengths": ("OST202", LENGTHS, "50 different shapes"),
    "storm": (
        "OST203",
        replace(
            GPU,
            graphs=(replace(GRAPHED, recaptures=90, captures=92, evictions=91, replays=300),),
        ),
        "recorded again 90 times for 300 replays; 91 recordings were evicted",
    ),
    "freed-input": (
        "OST204",
        replace(GPU, graphs=(GraphUse("g", kind="cuda-graph", replays=60, moved_inputs=3),)),
        "memory that had been freed",
    ),
    "moved-weights": (
        "OST204",
        replace(GPU, graphs=(replace(GRAPHED, dropped=(WordCount("weights-moved", 12),)),)),
        "lost 12 recordings",
    ),
    "autocast": (
        "OST205",
        replace(GPU, amp_switches=(AmpSwitch(LINE, 2, 1, ("bfloat16",)),)),
        "autocast to bfloat16 was entered once",
    ),
    "reasons": (
        "OST206",
        replace(
            GPU,
            graphs=(
                replace(
                    GRAPHED,
                    replays=10,
                    eager=(WordCount("host-sync", 390, "at m.py"),),
                    recordings=(RECORDING,),
                ),
            ),
        ),
        "replayed in 10 of 400 calls (2.5%); the rest: 390 host-sync (at m.py)",
    ),
    "no-faster": (
        "OST207",
        replace(
            GPU, graphs=(replace(GRAPHED, recordings=(replace(RECORDING, replay_us=890.0),) * 3),)
        ),
        "takes 890 us",
    ),
    "position": ("OST208", POSITIONS, "argument 2 is 0, 1, 2"),
    "breaks": (
        "OST301",
        replace(GPU, compile=CompileUse(breaks=(GraphBreak("print", LINE, 1),))),
        "at 1 place: print",
    ),
    "dearest-break-first": (
        "OST301",
        replace(
            GPU,
            compile=CompileUse(
                breaks=(GraphBreak("cheap", None, 9, 2.0), GraphBreak("dear", LINE, 1, 300.0))
            ),
        ),
        "2 places: dear",
    ),
    "recompiles": (
        "OST302",
        replace(GPU, compile=CompileUse(recompiles=(Recompile("f", LINE, 6, 9e6, ("size 3",)),))),
        "compiled again 6 times, in 9.00 s: size 3",
    ),
    "skips": (
        "OST303",
        replace(GPU, compile=CompileUse(skips=(SkippedCudagraphs("cpu device", LINE, 1),))),
        "1 compiled function: cpu device",
    ),
    "fp32": ("OST401", replace(GPU, attention=(ATTENTION,)), "flash refuses: dtype is float32"),
    "measured": (
        "OST401",
        replace(
            GPU,
            attention=(
                replace(
                    ATTENTION,
                    dtype="float16",
                    backend="efficient",
                    mask=(1, 1, 512, 512),
                    times=(BackendTime("efficient", 900.0), BackendTime("cudnn", 400.0)),
                ),
            ),
        ),
        "ran on efficient in 900 us; cudnn takes 400 us; flash refuses: there is an attn_mask",
    ),
    "gil": (
        "OST501",
        replace(
            GPU,
            gil=gil(
                0.5,
                ThreadUse("MainThread", 0.3, 0.4, 4e5, waits_at=LINE),
                ThreadUse("tokenizer", 0.9, 0.1, 1e3, place=LINE),
            ),
        ),
        "MainThread waits for the GIL 40% of the time, 400 ms in all, while tokenizer holds it",
    ),
    "lock": (
        "OST502",
        replace(GPU, locks=(LockHeld("device", "item", LINE, LINE, LINE, 60, 9e3, 55, 2e5),)),
        "across a wait for the device, 60 times; others stood in line 55 times, for 200 ms",
    ),
    "loop": (
        "OST503",
        replace(GPU, loop_blocks=(LoopBlock("model(x)", LINE, 12, 6e5, 6e4),)),
        "stood still 12 times, for up to 60.0 ms",
    ),
    "gc": (
        "OST504",
        replace(
            GPU,
            gc_pauses=tuple(
                GcPause(2, 9e3 + i, 2e3, 0, in_step=True, place=LINE) for i in range(5)
            ),
        ),
        "ran 5 times in the middle of steps",
    ),
    "threads": (
        "OST505",
        replace(GPU, threads=ThreadPools(4.0, 16, 1, processes=2, runnable_share=0.9, place=LINE)),
        "2 processes with 16 torch threads want 32 CPUs, and 4 are allowed",
    ),
    "splinters": ("OST601", replace(GPU, allocator=MEMORY), "the largest has 1.0 GiB"),
    "growth": (
        "OST602",
        replace(GPU, allocator=replace(MEMORY, largest_free_bytes=20 * GIB,
                growth=growing(*(n * 64 * MIB for n in range(40))))),
        "64.0 MiB more are allocated with every step",
    ),
    "orphaned-pool": (
        "OST602",
        replace(GPU, allocator=replace(MEMORY, largest_free_bytes=20 * GIB,
                pools=(PoolUse("(0, 3)", GIB, 0, owners=0),))),
        "1 graph pools keep 1.0 GiB",
    ),
    "retries": (
        "OST603",
        replace(GPU, allocator=replace(MEMORY, largest_free_bytes=20 * GIB, retries=3)),
        "ask again 3 times",
    ),
    "full": (
        "OST603",
        replace(
            GPU,
            allocator=replace(MEMORY, largest_free_bytes=20 * GIB, device_free_bytes=GIB),
        ),
        "1.0 GiB of the device are left",
    ),
    "numa": ("OST701", on(Gpu(0, "H200", numa_node=1), *AWAY), "90% of the process's memory"),
    "narrow-link": (
        "OST702",
        on(Gpu(0, "H200", link=replace(LINK, width=8, h2d_gbs=25.0, d2h_gbs=25.0))),
        "generation 5 x8 under load, of generation 5 x16, and moves 25.0 GB/s",
    ),
    "turns": (
        "OST703",
        on(Gpu(0, "H200", processes=(NOTEBOOK,), mps=False), switching=JITTER),
        "python (7) takes turns on GPU 0 without MPS",
    ),
    "heat": (
        "OST704",
        on(Gpu(0, "H200", clocks=replace(CLOCKS, sm_mhz=1200, reasons=("hw_thermal_slowdown",)))),
        "1200 of 1980 MHz under load, held down by heat",
    ),
}  # fmt: skip

QUIET = {
    "a-busy-device": replace(GPU, profile=WINDOW, callables=(MODEL,)),
    "a-device-that-the-host-waits-for": replace(GPU, profile=replace(IDLE, wait_us=8_000)),
    "recorded-already": replace(
        GPU, profile=replace(IDLE, launches=10, graph_launches=10), callables=(MODEL,)
    ),
    "small-copies": replace(GPU, profile=replace(WINDOW, copy_us=300, copy_bytes=MIB)),
    "lengths-in-buckets": churning(
        [f"int64[1, {n}]" for n in range(1, 51)],
        [(1, n) for n in range(1, 51)],
        replace(GRAPHED, calls=50, replays=46),
    ),
    "lengths-that-nothing-records": churning(
        [f"int64[1, {n}]" for n in range(1, 51)], [(1, n) for n in range(1, 51)], None
    ),
    "recaptures-now-and-then": replace(
        GPU, graphs=(replace(GRAPHED, recaptures=6, captures=8, calls=4000, replays=3900),)
    ),
    "autocast-switched-off": replace(GPU, amp_switches=(AmpSwitch(LINE, 9, 9, ("off",)),)),
    "autocast-around": replace(GPU, amp_switches=(AmpSwitch(LINE, 9, 0, ("bfloat16",)),)),
    "a-graph-that-pays": replace(GPU, graphs=(replace(GRAPHED, recordings=(RECORDING,)),)),
    "one-recompilation": replace(
        GPU, compile=CompileUse(recompiles=(Recompile("f", LINE, 1, 2e6, ("dynamic",)),))
    ),
    "decoding-on-math": replace(
        GPU, attention=(replace(ATTENTION, query=(1, 8, 1, 64), dtype="float16"),)
    ),
    "flash": replace(GPU, attention=(replace(ATTENTION, dtype="float16", backend="flash"),)),
    "one-thread-of-python": replace(
        GPU, gil=gil(0.0, ThreadUse("MainThread", 1.0, 0.0, 0.0), ThreadUse("idle", 0.0, 0.0, 0.0))
    ),
    "a-lock-that-nobody-wants": replace(
        GPU, locks=(LockHeld("device", "Tensor.item", LINE, LINE, LINE, 60, 9e3),)
    ),
    "one-slow-callback": replace(GPU, loop_blocks=(LoopBlock("load()", LINE, 1, 9e4, 9e4),)),
    "collections-between-steps": replace(
        GPU, gc_pauses=tuple(GcPause(2, 9e3 + i, 9e3, 0, in_step=False) for i in range(5))
    ),
    "collections-while-it-warms-up": replace(
        GPU, gc_pauses=tuple(GcPause(2, 10.0 + i, 9e4, 0, in_step=True) for i in range(5))
    ),
    "a-machine-busy-with-others": replace(
        GPU, threads=ThreadPools(4.0, 4, 1, runnable_share=2.0, throttled_share=0.5)
    ),
    "many-threads-that-never-lack-a-cpu": replace(
        GPU, threads=ThreadPools(4.0, 16, 1, runnable_share=0.01)
    ),
    "a-cache-of-large-pieces": replace(
        GPU, allocator=replace(MEMORY, largest_free_bytes=12 * GIB)
    ),
    "expandable-segments": replace(
        GPU, allocator=replace(MEMORY, expandable=True, largest_free_bytes=19 * GIB)
    ),
    "a-cache-that-fills-up": replace(
        GPU,
        allocator=replace(
            MEMORY,
            largest_free_bytes=20 * GIB,
            growth=growing(*(min(n, 20) * 64 * MIB for n in range(40))),
        ),
    ),
    "an-engine-that-takes-ninety-per-cent": replace(
        GPU,
        allocator=replace(MEMORY, largest_free_bytes=20 * GIB, device_free_bytes=14 * GIB),
    ),
    "memory-on-the-gpus-node": on(Gpu(0, "H200", numa_node=0), *AWAY),
    "a-full-link": on(Gpu(0, "H200", link=LINK)),
    "a-link-reported-wrongly": on(Gpu(0, "H200", link=replace(LINK, generation=1))),
    "mps": on(Gpu(0, "H200", processes=(NOTEBOOK,), mps=True), switching=JITTER),
    "a-process-that-only-holds-memory": on(
        Gpu(0, "H200", processes=(replace(NOTEBOOK, busy_share=0.0),)), switching=JITTER
    ),
    "latency-that-does-not-follow": on(
        Gpu(0, "H200", processes=(NOTEBOOK,), mps=False), switching=STEADY
    ),
    "a-few-per-cent-for-power": on(
        Gpu(0, "H200", clocks=replace(CLOCKS, sm_mhz=1860, reasons=("sw_power_cap",)))
    ),
    "an-idle-clock": on(
        Gpu(0, "H200", clocks=Clocks(sm_mhz=345, max_sm_mhz=1980, reasons=("gpu_idle",)))
    ),
}  # fmt: skip

ABSTAINS = {
    "nobody-profiled": ("OST102", GPU),
    "steady-and-nobody-profiled": ("OST201", replace(GPU, callables=(MODEL,))),
    "an-idle-link": (
        "OST702", on(Gpu(0, "H200", link=replace(LINK, generation=1, under_load=False)))
    ),
    "no-node-of-the-gpu": ("OST701", on(Gpu(0, "H200"), *AWAY)),
    "nobody-watched-switches": ("OST703", on(Gpu(0, "H200", processes=(NOTEBOOK,), mps=False))),
    "a-clock-read-while-idle": (
        "OST704",
        on(
            Gpu(
                0,
                "H200",
                clocks=replace(CLOCKS, sm_mhz=900, reasons=("sw_power_cap",), under_load=False),
            )
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "evidence", "words"), FIRES.values(), ids=FIRES)
def test_a_fault_is_found_in_these_words(code: str, evidence: Evidence, words: str) -> None:
    report = diagnose(evidence)
    facts = {finding.code: finding.fact for finding in report.findings}
    assert report.problems == ()
    assert words in facts.get(code, f"not found, but {facts}")


def test_a_cost_that_was_worked_out_is_said_to_be_inferred() -> None:
    """By a count, by a table, or by what another call took: it was not timed in itself."""
    worked_out = {"OST201", "OST203", "OST204", "OST206", "OST702", "OST704"}
    costs: dict[str, list[Basis]] = {}
    for _, evidence, _ in FIRES.values():
        for each in diagnose(evidence).findings:
            if each.code in worked_out and each.cost is not None:
                costs.setdefault(each.code, []).append(each.cost.kind)
    assert costs.keys() >= {"OST201", "OST203", "OST702", "OST704"}
    assert {kind for kinds in costs.values() for kind in kinds} == {Basis.INFERRED}


def test_shapes_that_never_come_twice_are_told_of_a_long_watch_too() -> None:
    """A long one looks at some of the calls, and keeps the most frequent signatures."""
    seen = tuple(SignatureUse(f"float32[1, {n}]", (1, n), 1) for n in range(256))
    steady = tuple(SignatureUse(f"float32[1, {n}]", (1, n), 300) for n in range(13))
    many = replace(MODEL, calls=4000, compiled=True, signatures=seen)
    (finding,) = diagnose(Evidence(callables=(many,))).findings
    assert finding.fact == f"{many.name} was called 4000 times with at least 256 different shapes"
    few = replace(many, signatures=steady)
    assert diagnose(Evidence(callables=(few,))).findings == ()


@pytest.mark.parametrize("evidence", QUIET.values(), ids=QUIET)
def test_what_only_looks_like_a_fault_is_not_reported(evidence: Evidence) -> None:
    report = diagnose(evidence)
    assert (report.findings, report.problems) == ((), ())


@pytest.mark.parametrize(("code", "evidence"), ABSTAINS.values(), ids=ABSTAINS)
def test_thin_evidence_is_answered_with_what_would_settle_it(code: str, evidence: Evidence) -> None:
    abstentions = {each.code: each for each in diagnose(evidence).abstentions}
    assert code in abstentions
    assert abstentions[code].settles_it


def test_the_buckets_proposed_for_churning_lengths_hold_every_length() -> None:
    finding = diagnose(LENGTHS).findings[0]
    assert "Buckets(1, (" in finding.remedies[0].what
    assert ", 50))" in finding.remedies[0].what


def test_nothing_is_found_in_no_evidence() -> None:
    report = diagnose(Evidence())
    assert (report.findings, report.abstentions) == ((), ())
    assert report.verdict == "no step was seen, and nothing else was found"
