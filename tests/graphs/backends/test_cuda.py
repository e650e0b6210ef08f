"""CUDA recordings: right results, nothing left behind, nothing freed too early."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ostinato.errors import CaptureError, InternalError
from ostinato.graphs.backends import cuda
from ostinato.graphs.backends.cuda import CudaRecording

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)
MIB = 1 << 20


@dataclass
class Seen:
    """What an observed run would say of a step, set by hand: the backend alone is under test."""

    ops: int = 1
    refusals: list[object] = field(default_factory=list)
    externals: list[Tensor] = field(default_factory=list)
    generators: list[torch.Generator] = field(default_factory=list)
    devices: frozenset[torch.device] = frozenset({DEVICE})
    draws: bool = False
    has_collective: bool = False


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    # torch gives a generator two numbers in device memory while any graph knows it. One recording
    # that lives through the test keeps that out of what the test measures.
    anchor = record(lambda: torch.zeros(1, device=DEVICE))
    yield
    anchor.release()
    cuda.release_all()
    assert not torch.cuda.is_current_stream_capturing()
    torch.cuda.synchronize()


def record(
    step: Callable[[], object],
    inputs: Sequence[Tensor] = (),
    *,
    seen: Seen | None = None,
    warmups: int = 2,
    restore: Callable[[], None] = lambda: None,
) -> CudaRecording:
    return cuda.backend().record(
        step,
        inputs=inputs,
        device=DEVICE,
        warmups=warmups,
        observation=seen or Seen(),  # type: ignore[arg-type]
        restore=restore,
    )


def reserved() -> int:
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def count_up(x: Tensor, times: int) -> Tensor:
    for _ in range(times):
        x = x + 1
    return x


def capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()


# ---------------------------------------------------------------- results


def test_a_replay_computes_the_step_again_from_its_inputs() -> None:
    x = torch.arange(8.0, device=DEVICE)
    recording = record(lambda: x * 2 + 1, [x])
    x.fill_(5)
    recording.result.zero_()
    recording.replay()
    assert recording.result.tolist() == [11.0] * 8


def test_after_recording_the_result_holds_the_values_of_the_recorded_run() -> None:
    x = torch.full((4,), 3.0, device=DEVICE)
    recording = record(lambda: x.square(), [x])
    assert recording.result.tolist() == [9.0] * 4


def test_recording_runs_the_step_once_for_every_written_tensor() -> None:
    counter = torch.zeros(1, device=DEVICE)
    recording = record(lambda: counter.add_(1), restore=counter.zero_)
    assert counter.item() == 1
    recording.replay()
    assert counter.item() == 2


def test_the_driver_counts_the_nodes_of_a_recording() -> None:
    x = torch.ones(16, device=DEVICE)
    recording = record(lambda: x.add(1).mul(2).neg(), [x])
    assert recording.nodes_counted
    assert recording.nodes == 3


def test_a_step_that_launches_nothing_is_recorded_without_a_warning() -> None:
    x = torch.ones(2, device=DEVICE)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        recording = record(lambda: x.view(1, 2), [x], seen=Seen(ops=0))
    assert warned == []
    recording.replay()
    assert recording.result.data_ptr() == x.data_ptr()


def test_fill_copies_tensors_of_several_dtypes_and_layouts() -> None:
    given = [
        torch.randn(4, 3, device=DEVICE).t(),
        torch.arange(5, device=DEVICE),
        torch.ones(2, 2, device=DEVICE, dtype=torch.float16),
        torch.full((2, 2), 2.0, device=DEVICE, dtype=torch.float16),
        torch.arange(3, dtype=torch.int32),
    ]
    statics = [
        torch.empty_strided(g.shape, g.stride(), dtype=g.dtype, device=DEVICE) for g in given
    ]
    cuda.backend().fill(statics, given)
    for static, source in zip(statics, given, strict=True):
        assert torch.equal(static.cpu(), source.cpu())
    cuda.backend().fill(statics[:1], [given[0] + 1])
    assert torch.equal(statics[0], given[0] + 1)


# ---------------------------------------------------------------- random numbers


def test_replays_draw_what_eager_runs_would_have_drawn() -> None:
    state = torch.cuda.get_rng_state(DEVICE)
    eager = [torch.rand(4, device=DEVICE) for _ in range(4)]
    recording = record(
        lambda: torch.rand(4, device=DEVICE),
        seen=Seen(draws=True),
        restore=lambda: torch.cuda.set_rng_state(state, DEVICE),
    )
    drawn = [recording.result.clone()]
    for _ in range(2):
        recording.replay()
        drawn.append(recording.result.clone())
    drawn.append(torch.rand(4, device=DEVICE))
    assert [d.tolist() for d in drawn] == [e.tolist() for e in eager]


def test_a_private_generator_of_the_device_goes_on_from_replay_to_replay() -> None:
    def make() -> torch.Generator:
        return torch.Generator(DEVICE).manual_seed(7)

    reference = make()
    eager = [torch.rand(4, device=DEVICE, generator=reference) for _ in range(3)]
    private = make()
    state = private.get_state()
    recording = record(
        lambda: torch.rand(4, device=DEVICE, generator=private),
        seen=Seen(generators=[private]),
        restore=lambda: private.set_state(state) and None,
    )
    drawn = [recording.result.clone()]
    for _ in range(2):
        recording.replay()
        drawn.append(recording.result.clone())
    assert [d.tolist() for d in drawn] == [e.tolist() for e in eager]


def test_an_unregistered_private_generator_is_refused_with_its_reason() -> None:
    private = torch.Generator(DEVICE).manual_seed(7)
    with pytest.raises(CaptureError) as caught:
        record(lambda: torch.rand(4, device=DEVICE, generator=private))
    assert caught.value.reason == "unregistered-generator"
    assert torch.rand(2, device=DEVICE, generator=private).shape == (2,)


# ---------------------------------------------------------------- nothing left behind


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_step_that_raises_half_way_leaves_no_trace(kind: type[BaseException]) -> None:
    before = reserved()

    def step() -> Tensor:
        big = torch.ones(64 * MIB, device=DEVICE, dtype=torch.uint8)
        if capturing():
            raise kind("half way")
        return big + 1

    expected = CaptureError if issubclass(kind, Exception) else kind
    with pytest.raises(expected):
        record(step)
    assert not capturing()
    assert gc.isenabled()
    assert reserved() == before
    x = torch.ones(4, device=DEVICE)
    assert record(lambda: x + 1, [x]).result.tolist() == [2.0] * 4


def test_a_host_read_inside_the_capture_is_named_and_fully_undone() -> None:
    before = reserved()
    torch.cuda.manual_seed(3)

    def step() -> Tensor:
        big = torch.ones(64 * MIB, device=DEVICE, dtype=torch.uint8)
        if capturing():
            big.sum().item()  # the guilty line
        return big + torch.rand(1, device=DEVICE).to(torch.uint8)

    for _ in range(3):
        with pytest.raises(CaptureError) as caught:
            record(step)
        assert caught.value.reason == "host-sync"
        assert "the guilty line" in str(caught.value)
        del caught
    assert not capturing()
    assert reserved() == before
    assert torch.rand(8, device=DEVICE).shape == (8,)  # the generator knows the capture is over
    kept = torch.ones(MIB, device=DEVICE)  # and the allocator diverts nothing
    recording = record(lambda: kept + torch.rand(1, device=DEVICE), seen=Seen(draws=True))
    recording.replay()
    assert float(recording.result.min()) >= 1


def test_a_failed_capture_frees_nothing_that_another_recording_uses() -> None:
    x = torch.ones(4 * MIB, device=DEVICE)
    good = record(lambda: x * 3, [x])
    with pytest.raises(CaptureError):
        record(lambda: x.sum().item() if capturing() else x)
    reserved()
    junk = [torch.full((4 * MIB,), -1.0, device=DEVICE) for _ in range(8)]
    good.replay()
    assert float(good.result.min()) == 3
    del junk


def test_a_capture_broken_by_something_else_is_tried_again() -> None:
    restores = []
    broken = []
    x = torch.ones(4, device=DEVICE)

    def step() -> Tensor:
        if capturing() and not broken:
            broken.append(True)
            try:
                x.sum().item()
            except RuntimeError:
                return x  # hides the cause, as a library's own thread would
        return x + 1

    recording = record(step, [x], warmups=1, restore=lambda: restores.append(1))
    assert recording.result.tolist() == [2.0] * 4
    assert len(restores) == 3


def test_recording_restores_the_collector_and_the_autocast_cache() -> None:
    x = torch.ones(8, 8, device=DEVICE)
    seen_inside = []
    gc.disable()
    try:
        with torch.autocast("cuda", torch.float16):
            record(lambda: seen_inside.append(torch.is_autocast_cache_enabled()) or x @ x, [x])
            assert torch.is_autocast_cache_enabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert seen_inside == [False] * 3
    record(lambda: x + 1, [x])
    assert gc.isenabled()


def test_a_thread_that_pins_memory_does_not_break_a_capture() -> None:
    stop = threading.Event()
    pinned: list[Tensor] = []  # kept, so that each one asks the driver anew
    failures: list[BaseException] = []

    def pin() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    pinned.append(torch.empty(1 << 16, dtype=torch.uint8).pin_memory())
                    event = torch.cuda.Event()
                    event.record()
                    event.query()  # what a watchdog thread does; it ends a "global" capture
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        x = torch.zeros(4, device=DEVICE)
        for _ in range(10):
            recording = record(lambda: count_up(x, 300), [x])
            assert recording.result.tolist() == [300.0] * 4
            recording.release()
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert pinned


# ---------------------------------------------------------------- memory that must stay


def test_a_recording_keeps_the_memory_of_a_parameter_that_was_rebound() -> None:
    weight = torch.nn.Parameter(torch.full((MIB,), 2.0, device=DEVICE), requires_grad=False)
    recording = record(lambda: weight * 1, seen=Seen(externals=[weight]))
    weight.data = torch.zeros(1, device=DEVICE)
    torch.cuda.empty_cache()
    junk = [torch.full((MIB,), -1.0, device=DEVICE) for _ in range(8)]
    recording.result.zero_()
    recording.replay()
    assert float(recording.result.min()) == 2
    del junk


def test_a_recording_owns_its_cublas_workspace() -> None:
    a = torch.randn(512, 512, device=DEVICE, dtype=torch.float16)

    def product_bytes() -> int:
        before = torch.cuda.memory_allocated()
        product = a @ a
        return torch.cuda.memory_allocated() - before - product.nbytes + a.nbytes

    torch._C._cuda_clearCublasWorkspaces()
    with_workspace, without = product_bytes(), product_bytes()
    assert with_workspace > without == a.nbytes
    assert record(lambda: a @ a, [a]).bytes >= with_workspace
    with torch.cuda.stream(cuda._side_stream(0)):
        assert product_bytes() == with_workspace  # no eager call goes on with the recording's


def test_bytes_are_what_the_pool_holds_and_release_gives_them_back() -> None:
    x = torch.ones(32 * MIB, device=DEVICE, dtype=torch.uint8)
    before = reserved()
    recording = record(lambda: x + 1, [x])
    assert reserved() - before == recording.bytes >= 32 * MIB
    recording.release()
    recording.release()
    assert reserved() == before


def test_release_lets_the_inputs_go() -> None:
    before = reserved()

    def make() -> CudaRecording:
        x = torch.ones(32 * MIB, device=DEVICE, dtype=torch.uint8)
        return record(lambda: x[:1] + 1, [x])

    recording = make()
    assert reserved() >= before + 32 * MIB
    recording.release()
    assert reserved() == before


def test_a_recording_that_is_dropped_gives_its_memory_back() -> None:
    x = torch.ones(32 * MIB, device=DEVICE, dtype=torch.uint8)
    before = reserved()
    recording = record(lambda: x + 1, [x])
    recording.replay()
    del recording
    assert reserved() == before


def test_a_released_recording_cannot_replay() -> None:
    x = torch.ones(2, device=DEVICE)
    recording = record(lambda: x + 1, [x])
    recording.release()
    with pytest.raises(InternalError, match="released"):
        recording.replay()


# ---------------------------------------------------------------- streams, threads


def test_uses_of_one_recording_on_two_streams_never_overlap() -> None:
    x = torch.zeros(1, device=DEVICE)

    def slow() -> Tensor:
        torch.cuda._sleep(20_000_000)
        return x + 0

    recording = record(slow, [x])
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    handed_out = []
    for turn in range(6):
        with torch.cuda.stream(streams[turn % 2]):
            recording.enter()
            x.fill_(turn)
            recording.replay()
            handed_out.append(recording.result.clone())
    torch.cuda.synchronize()
    assert [out.item() for out in handed_out] == [0, 1, 2, 3, 4, 5]


def test_recording_waits_for_what_the_caller_queued_before_it() -> None:
    x = torch.zeros(4, device=DEVICE)
    kept = torch.zeros(4, device=DEVICE)
    for value in (3, 7):  # the first turn loads every kernel, and loading one waits by itself
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)
        x.fill_(value)
        record(lambda: kept.copy_(x), [x])
        assert kept.tolist() == [value] * 4


def test_what_the_caller_queues_after_recording_waits_for_the_recorded_run() -> None:
    x = torch.ones(4, device=DEVICE)

    def slow() -> Tensor:
        torch.cuda._sleep(20_000_000)
        return x + 1

    recording = record(slow, [x])
    out = recording.result.clone()
    assert out.tolist() == [2.0] * 4


def test_32_threads_record_and_replay_at_once() -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            x = torch.full((256,), float(seed), device=DEVICE)
            recording = record(lambda: (x * 2).cumsum(0), [x])
            for value in range(5):
                recording.enter()
                x.fill_(value)
                recording.replay()
                if recording.result[-1].item() != 512 * value:
                    wrong.append((seed, value))
        except BaseException as error:  # noqa: BLE001 - reported by the test
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.gpu2
def test_a_step_is_recorded_on_its_device_while_another_is_current() -> None:
    second = torch.device("cuda", 1)
    conv = torch.nn.Conv2d(3, 8, 3, device=second)
    x = torch.randn(1, 3, 16, 16, device=second)
    with torch.no_grad(), torch.cuda.device(0):
        recording = cuda.backend().record(
            lambda: conv(x),
            inputs=[x],
            device=second,
            warmups=2,
            observation=Seen(devices=frozenset({second})),  # type: ignore[arg-type]
            restore=lambda: None,
        )
        recording.enter()
        recording.result.zero_()
        recording.replay()
        assert torch.cuda.current_device() == 0
        torch.testing.assert_close(recording.result, conv(x))


# ---------------------------------------------------------------- torch.compile


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own, different in every release
def test_a_compiled_part_is_recorded_with_the_rest() -> None:
    layer = torch.compile(torch.nn.Linear(32, 32, device=DEVICE))
    x = torch.randn(4, 32, device=DEVICE)
    with torch.no_grad():
        recording = record(lambda: layer(x).relu(), [x])
        x.copy_(torch.randn(4, 32, device=DEVICE))
        recording.result.zero_()
        recording.replay()
        torch.testing.assert_close(recording.result, layer(x).relu())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_part_compiled_with_its_own_graphs_is_refused_with_its_reason() -> None:
    layer = torch.compile(torch.nn.Linear(32, 32, device=DEVICE), mode="reduce-overhead")
    x = torch.randn(4, 32, device=DEVICE)
    with torch.no_grad():
        for _ in range(3):
            want = layer(x).clone()
        with pytest.raises(CaptureError) as caught:
            record(lambda: layer(x), [x])
        assert caught.value.reason == "compiled-inside"
        torch.testing.assert_close(layer(x), want)


# ---------------------------------------------------------------- timing, failure, exit


def test_the_time_of_a_run_includes_the_device() -> None:
    def time_us(cycles: int) -> float:
        run = lambda: torch.cuda._sleep(cycles)  # noqa: E731
        return cuda.backend().time_us(
            run, before=lambda: torch.cuda._sleep(50_000_000), device=DEVICE, repeats=5
        )

    assert time_us(20_000_000) > 5 * time_us(1_000_000) > 0


def test_what_comes_before_a_run_is_not_in_its_time() -> None:
    order: list[str] = []
    time_us = cuda.backend().time_us(
        lambda: order.append("run"),
        before=lambda: order.append("before") or torch.cuda._sleep(50_000_000),
        device=DEVICE,
        repeats=3,
    )
    assert order == ["before", "run"] * 4
    assert time_us < 5_000


def test_the_time_of_a_run_includes_the_host() -> None:
    time_us = cuda.backend().time_us(
        lambda: time.sleep(0.005),
        before=lambda: torch.cuda._sleep(50_000_000),
        device=DEVICE,
        repeats=3,
    )
    assert time_us >= 4_900


def run_script(folder: Path, script: str, timeout_s: int = 60) -> subprocess.CompletedProcess[str]:
    # A file, not -c: processes that this one spawns read it again.
    path = folder / "script.py"
    path.write_text(script)
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


PREAMBLE = """
from dataclasses import dataclass, field
import torch
from ostinato.graphs.backends import cuda

class Seen:
    ops, refusals, externals, generators, devices = 1, (), (), (), frozenset()
    draws = has_collective = False

def record(step, seen=None):
    return cuda.backend().record(step, inputs=[], device=torch.device("cuda"), warmups=2,
                                 observation=seen or Seen(), restore=lambda: None)
"""


@pytest.mark.slow
@pytest.mark.timeout(90)  # the script's own limit, and what surrounds it
@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.gpu2)])
@pytest.mark.parametrize("order", ["group-first", "recording-first", "left-to-exit"])
def test_a_recorded_all_reduce_does_not_hang_the_exit(
    tmp_path: Path, order: str, world: int
) -> None:
    script = (
        PREAMBLE
        + f"""
import os, socket, sys
import torch.distributed as dist
from ostinato.graphs.observe import observe
import torch.multiprocessing as processes

def work(rank, world, port, order):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world,
                            device_id=torch.device("cuda", rank))
    x = torch.ones(4, device="cuda")
    def step():
        dist.all_reduce(x)
        return x + 1
    step()
    seen = observe(step, [], device=torch.device("cuda", rank))
    recording = record(step, seen)
    recording.replay()
    torch.cuda.synchronize()
    if order == "recording-first":
        cuda.release_all()
    if order != "left-to-exit":
        dist.destroy_process_group()
    print("done", flush=True)

if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if {world} == 1:
        work(0, 1, port, {order!r})
    else:
        processes.spawn(work, ({world}, port, {order!r}), nprocs={world})
"""
    )
    done = run_script(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == world
