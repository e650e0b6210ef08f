"""Saved traces: what they come to, with CUDA graphs in them, and what a broken one still says."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity

from doctor.trace.written import KERNEL_US, KERNELS, Trace, eager, replayed, write_nsight
from ostinato import measure
from ostinato.doctor.activity import WaitKind
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, from_json, to_json
from ostinato.doctor.trace import read_trace, stream
from ostinato.doctor.trace.frames import users_place
from ostinato.errors import UsageError

Write = Callable[[Trace, Path], Path]

FORMS: dict[str, Write] = {
    "chrome": lambda trace, folder: trace.write(folder / "trace.json"),
    "gzip": lambda trace, folder: trace.write(folder / "trace.json.gz"),
    "nsight": lambda trace, folder: write_nsight(trace, folder / "run.sqlite"),
}


@pytest.fixture(params=FORMS)
def write(request: pytest.FixtureRequest) -> Write:
    return FORMS[str(request.param)]


def names(evidence: Evidence) -> set[str]:
    return {finding.name for finding in diagnose(evidence).findings}


def test_eager_steps_are_counted_and_found_to_be_bound_by_launches(
    write: Write, tmp_path: Path
) -> None:
    found = read_trace(write(eager(), tmp_path))
    window = found.profile
    assert window is not None
    assert (window.steps, window.kernels) == (10, 10 * KERNELS)
    assert (window.launches, window.graph_launches) == (10 * KERNELS, 0)
    assert window.busy_us == pytest.approx(10 * KERNELS * KERNEL_US)
    assert window.wall_us == pytest.approx(10_000, abs=1)
    assert window.short_kernels == 10 * KERNELS
    assert sum(use.count for use in window.top) == 10 * KERNELS
    assert found.step_us() == pytest.approx(1000)
    assert (found.subject.accelerator, found.subject.capability) == ("NVIDIA H200", "9.0")
    assert "launch-bound-step" in names(found)


def test_kernels_of_graphs_are_work_and_not_idle_time(write: Write, tmp_path: Path) -> None:
    found = read_trace(write(replayed(), tmp_path))
    window = found.profile
    assert window is not None
    assert (window.launches, window.graph_launches) == (10, 10)
    assert window.kernels == sum(use.in_graphs for use in window.top) == 10 * KERNELS
    assert window.busy_us / window.wall_us > 0.9
    assert "launch-bound-step" not in names(found)


def test_a_graph_with_gaps_idles_and_yet_is_not_bound_by_launches(
    write: Write, tmp_path: Path
) -> None:
    """Few launches cannot be what the device waits for."""
    found = read_trace(write(replayed(every=40.0), tmp_path))
    assert found.profile is not None
    assert found.profile.busy_us / found.profile.wall_us < 0.2
    assert "launch-bound-step" not in names(found)


def test_graphs_whose_kernels_were_not_recorded_leave_idle_time_unknown(
    write: Write, tmp_path: Path
) -> None:
    trace = replayed(shown=False)
    trace.event("kernel", "other", 1, 2, correlation=999)
    found = read_trace(write(trace, tmp_path))
    assert found.profile is None
    assert any("10 graph launches show none of their kernels" in each for each in found.problems)
    assert "launch-bound-step" not in names(found)


def test_a_graph_that_nsight_traced_as_one_piece_is_busy_time(tmp_path: Path) -> None:
    path = write_nsight(replayed(shown=False), tmp_path / "run.sqlite")
    with sqlite3.connect(path) as base:
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, correlationId INT)"
        )
        calls = base.execute(
            "SELECT start, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        ).fetchall()
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?)",
            [(start + 10_000, start + 200_000, correlation) for start, correlation in calls],
        )
    base.close()
    found = read_trace(path)
    assert found.profile is not None
    assert found.profile.busy_us == pytest.approx(10 * 190)
    assert found.profile.kernels == 0


def with_reads() -> Trace:
    trace = eager(every=2.0)
    for number in range(10):
        at = number * 1000.0
        trace.read(at + 500, 100)
        trace.copy(at + 700, 50, 4096, "DtoH (Device -> Pageable)")
        trace.copy(at + 800, 60, 1 << 20, "HtoD (Pageable -> Device)")
        trace.event("cuda_runtime", "cudaDeviceSynchronize", at + 900, 5)
    return trace


def test_waits_are_told_apart_by_the_call_of_torch_they_lie_in(tmp_path: Path) -> None:
    found = read_trace(with_reads().write(tmp_path / "trace.json"))
    waits = {wait.kind: wait for wait in found.waits}
    assert {kind: wait.count for kind, wait in waits.items()} == {
        WaitKind.SCALAR: 10,
        WaitKind.EXPORT: 10,
        WaitKind.UPLOAD: 10,
        WaitKind.SYNCHRONIZE: 10,
    }
    scalar = waits[WaitKind.SCALAR]
    assert scalar.us == pytest.approx(1000)
    assert scalar.step_us == pytest.approx([100] * 10)
    assert (scalar.inside, scalar.between, scalar.on_device) == (10, 0, True)
    assert scalar.place is not None
    assert str(scalar.place) == "model.py:30"
    assert scalar.place.function == "decide"
    assert waits[WaitKind.EXPORT].place is not None
    assert waits[WaitKind.EXPORT].place.function == "forward"
    assert "host-sync-in-step" in names(found)


def test_the_innermost_frame_counts_in_whatever_order_frames_come(tmp_path: Path) -> None:
    for order in (1, -1):
        trace = Trace()
        trace.read(500, 100)
        trace.event("python_function", "app/serve.py(3): handle", 0, 1000)
        trace.event("python_function", "app/model.py(10): forward", 100, 800)
        trace.events = trace.events[::order]
        (wait,) = read_trace(trace.write(tmp_path / "trace.json")).waits
        assert wait.place is not None
        assert (wait.place.function, wait.place.line) == ("decide", 30)


def test_the_head_of_a_trace_is_read_whole_wherever_the_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = {"schemaVersion": 12, "number": -1.25e3, "word": None, "text": "a\\n\u00e9", "yes": True}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**head, "traceEvents": [], "last": 345}), "utf-8")
    for chunk in range(1, 40):
        monkeypatch.setattr(stream, "_CHUNK", chunk)
        whole = stream.ChromeStream(path)
        assert list(whole) == []
        assert (whole.head, whole.damage) == ({**head, "last": 345}, "")


def test_copies_are_added_up_by_direction_and_memory(write: Write, tmp_path: Path) -> None:
    found = read_trace(write(with_reads(), tmp_path))
    copies = [(each.direction, each.count, each.bytes, each.pinned) for each in found.copies]
    assert copies == [("h2d", 10, 10 << 20, False), ("d2h", 10, 40_960, False)]
    assert found.profile is not None
    assert found.profile.copy_us == pytest.approx(1100)


def test_the_wait_of_the_profiler_itself_is_no_wait_of_the_program(tmp_path: Path) -> None:
    trace = eager()
    trace.event("cuda_runtime", "cudaDeviceSynchronize", 20_000, 5)
    found = read_trace(trace.write(tmp_path / "trace.json"))
    assert found.waits == ()
    assert found.profile is not None
    assert found.profile.waits == 0


def test_steps_may_be_marked_by_another_name(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(3):
        trace.event("user_annotation", f"decode {number}", number * 100, 50)
    path = trace.write(tmp_path / "trace.json")
    assert read_trace(path).steps_seen == 0
    assert [step.turn_us for step in read_trace(path, step="decode").steps] == [100, 100, None]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that torch.profiler wrote here."""
    layer = torch.nn.Linear(16, 16)

    def step(x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        if y.sum().item() > -1e9:
            y = y[y > 0].sum() + y
        q = y.view(1, 2, 2, 16)
        return functional.scaled_dot_product_attention(q, q, q)

    path = tmp_path_factory.mktemp("real") / "trace.json.gz"
    watched = measure.profiler(ProfilerActivity.CPU, with_stack=True, record_shapes=True)
    with torch.no_grad(), watched as p:
        for _ in range(3):
            with torch.profiler.record_function("step model"):
                step(torch.ones(4, 16))
    plain = path.with_suffix("")
    p.export_chrome_trace(str(plain))
    path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


def test_a_trace_of_torch_on_this_cpu_gives_steps_reads_lines_and_attention(real: Path) -> None:
    found = read_trace(real)
    assert found.steps_seen == 3
    assert found.subject.device == "cpu"
    assert found.profile is None
    kinds = {wait.kind: wait for wait in found.waits}
    assert kinds[WaitKind.SCALAR].count == 3
    assert kinds[WaitKind.SHAPE].count == 3
    assert kinds[WaitKind.SHAPE].op == "indexing by a mask"
    for wait in kinds.values():
        assert (wait.on_device, wait.us) == (False, 0.0)
        assert wait.place is not None
        assert wait.place.function == "step"
        assert wait.place.path.endswith("test_trace.py")
    (attention,) = found.attention
    assert (attention.count, attention.query, attention.backend) == (3, (1, 2, 2, 16), "flash")
    assert attention.dtype == "float32"
    assert any("nothing in the trace ran on a GPU" in each for each in found.problems)
    assert from_json(to_json(found)) == found


def test_a_small_window_reads_the_same_as_a_large_one(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [read_trace(real), read_trace(eager(3).write(tmp_path / "t.json"))]
    monkeypatch.setattr(stream, "_CHUNK", 61)
    assert [read_trace(real), read_trace(tmp_path / "t.json")] == whole


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.77, 0.98])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_file_that_breaks_off_says_so_and_gives_what_came_before(
    suffix: str, share: float, tmp_path: Path
) -> None:
    path = eager().write(tmp_path / f"trace{suffix}")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    found = read_trace(path)
    assert any("the trace is damaged: it breaks off after" in each for each in found.problems)
    if share > 0.9:
        assert found.steps_seen >= 9


def test_nonsense_in_the_middle_costs_what_follows_it(tmp_path: Path) -> None:
    text = eager().text()
    middle = text.index('{"ph"', len(text) // 2)
    path = tmp_path / "trace.json"
    path.write_text(text[:middle] + "%%%" + text[middle:], "utf-8")
    found = read_trace(path)
    assert any("it is broken after" in each for each in found.problems)
    assert 3 <= found.steps_seen <= 7


def test_odd_events_are_passed_over(tmp_path: Path) -> None:
    trace = eager(2)
    before = read_trace(trace.write(tmp_path / "a.json"))
    trace.events[3:3] = [
        {},
        {"ph": "X"},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1e300, "dur": 1},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1},
        {"ph": "X", "cat": 7, "name": None, "ts": 1, "dur": 1, "args": []},
        {"ph": "X", "cat": "python_function", "name": "a.py(1): f", "ts": None, "dur": 1},
        [1, 2],  # type: ignore[list-item]
    ]
    after = read_trace(trace.write(tmp_path / "b.json"))
    assert (after.profile, after.steps) == (before.profile, before.steps)
    assert any("events are malformed, and were passed over" in said for said in after.problems)


def test_bytes_that_are_no_text_cost_only_themselves(tmp_path: Path) -> None:
    text = eager(2).text().replace("void gemm<0>", "void \udcff gemm<0>")
    path = tmp_path / "trace.json"
    path.write_bytes(
        json.dumps(json.loads(text), ensure_ascii=False).encode(errors="surrogateescape")
    )
    found = read_trace(path)
    assert (found.steps_seen, found.problems) == (2, ())


def test_events_alone_are_a_trace_as_well(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("\ufeff" + json.dumps(eager(2).events), "utf-8")
    assert read_trace(path).steps_seen == 2


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("none.json", None, "OST7060", "no such file"),
        ("empty.json", b"", "OST7060", "is empty"),
        ("text.json", b"hello", "OST7061", "neither a Chrome trace"),
        ("other.json", b'{"a": 1}', "OST7061", "holds no traceEvents"),
        ("odd.json", b'{"traceEvents": [{"a": 1}, 3, null]}', "OST7061", "is damaged: not one of"),
        ("timeless.json", b'[{"ph": "X", "name": "a", "ts": "x"}]', "OST7061", "(1 read)"),
        ("cut.json", b'{"schemaVersion": ', "OST7061", "ends in the middle"),
        ("bad.json.gz", b"\x1f\x8bnonsense", "OST7061", "is no trace"),
        ("run.nsys-rep", b"\x00\x01report", "OST7061", "nsys export --type sqlite"),
        ("torn.sqlite", b"SQLite format 3\x00" + b"\xff" * 200, "OST7061", "cannot be read"),
    ],
)
def test_what_is_no_trace_is_an_error_with_a_remedy(
    name: str, content: bytes | None, code: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_trace(path)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "other.sqlite")
    base.execute("CREATE TABLE people (name TEXT)")
    base.commit()
    base.close()
    with pytest.raises(UsageError, match="none that Nsight Systems exported"):
        read_trace(tmp_path / "other.sqlite")


@pytest.mark.parametrize("table", ["KERNEL", "MEMCPY", "RUNTIME"])
def test_an_export_without_one_of_its_tables_gives_the_rest(table: str, tmp_path: Path) -> None:
    path = write_nsight(with_reads(), tmp_path / "run.sqlite")
    base = sqlite3.connect(path)
    base.execute(f"DROP TABLE CUPTI_ACTIVITY_KIND_{table}")
    base.execute("ALTER TABLE NVTX_EVENTS DROP COLUMN textId")
    if table != "KERNEL":
        base.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN shortName")
    base.commit()
    base.close()
    found = read_trace(path)
    assert found.profile is not None
    assert all(use.name.startswith("void gemm<") for use in found.profile.top)
    assert (found.profile is not None, found.steps_seen <= 10) == (True, True)
    assert (found.profile.kernels == 0) == (table == "KERNEL")
    assert (found.copies == ()) == (table == "MEMCPY")
    assert (found.waits == ()) == (table == "RUNTIME")


def test_an_export_with_a_damaged_page_gives_what_can_be_read(tmp_path: Path) -> None:
    path = write_nsight(with_reads(), tmp_path / "run.sqlite")
    whole = read_trace(path)
    content = bytearray(path.read_bytes())
    pages = range(4096 * 12, len(content), 4096)
    for page in pages:
        content[page : page + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    found = read_trace(path)
    assert any("the export is damaged at its" in each for each in found.problems)
    assert whole.problems == ()
    assert len(found.waits) + found.steps_seen > 0


def test_an_export_that_breaks_off_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = write_nsight(with_reads(), tmp_path / "run.sqlite")
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(UsageError, match="cannot be read as an SQLite database") as caught:
        read_trace(path)
    assert "export the report again" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("app/model.py(12): forward", "model.py:12"),
        ("/home/me/app/model.py(12): <lambda>", "model.py:12"),
        ("torch/nn/modules/module.py(1779): _call_impl", None),
        ("threading.py(1012): run", None),
        ("<built-in method item of Tensor object at 0x7f>", None),
        ("<frozen os>(674): __getitem__", None),
        ("/usr/lib/python3.12/json/decoder.py(3): decode", None),
        ("/v/site-packages/transformers/models/m.py(3): f", None),
        ("nn.Module: Linear_0", None),
    ],
)
def test_only_frames_of_the_users_own_files_are_places(name: str, place: str | None) -> None:
    found = users_place(name)
    assert (None if found is None else str(found)) == place


def test_reading_a_trace_needs_no_torch(tmp_path: Path) -> None:
    path = eager(2).write(tmp_path / "trace.json")
    code = (
        "import sys; from pathlib import Path; import ostinato.cli.doctor_trace\n"
        "from ostinato.doctor.trace import read_trace\n"
        "assert read_trace(Path(sys.argv[1])).profile.kernels == 100\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0
