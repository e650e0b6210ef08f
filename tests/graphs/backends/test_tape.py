"""The tape: refusals, failures, release, threads and compiled code."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphs.backends.taping import CPU, check_replays, put, record
from ostinato.errors import CaptureError, InternalError
from ostinato.graphs.backends import tape
from ostinato.graphs.observe import observe


@pytest.fixture(autouse=True)
def _without_gradients() -> object:
    with torch.no_grad():
        yield


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4)


def test_what_was_refused_when_observed_is_not_recorded(x: Tensor) -> None:
    with pytest.raises(CaptureError, match=r"_local_scalar_dense.* at test_tape\.py") as caught:
        record(lambda: x * x.sum().item(), [x])
    assert caught.value.reason == "host-sync"
    assert caught.value.code == "OST1101"


def test_a_step_whose_calls_change_from_run_to_run_is_refused(x: Tensor) -> None:
    runs: list[int] = []

    def step() -> object:
        runs.append(0)
        return x * len(runs)

    with pytest.raises(CaptureError, match="another call when it ran again") as caught:
        record(step, [x])
    assert caught.value.reason == "python-side-effect"


def test_a_step_that_reads_what_its_last_run_made_is_refused(x: Tensor) -> None:
    kept = [torch.zeros(3, 4)]

    def step() -> object:
        kept[0] = kept[0] + x
        return kept[0] * 2

    with pytest.raises(CaptureError, match="made by an earlier run") as caught:
        record(step, [x])
    assert caught.value.reason == "python-side-effect"
    assert "kept[0] = kept[0] + x" in str(caught.value)


def test_a_step_that_reads_its_last_run_is_refused_without_a_rehearsal_too(x: Tensor) -> None:
    kept = [torch.zeros(3, 4)]

    def step() -> object:
        kept[0] = kept[0] + x
        return kept[0] * 2

    with pytest.raises(CaptureError, match="made by an earlier run"):
        record(step, [x], warmups=0)


@pytest.mark.parametrize("warmups", [0, 1])
def test_a_parameter_made_inside_is_refused_with_its_line_and_the_cure(
    warmups: int, x: Tensor
) -> None:
    def step() -> object:
        weight = nn.Parameter(x * 2)
        return weight + 1

    with pytest.raises(CaptureError, match="use the tensor that it is made of") as caught:
        record(step, [x], warmups=warmups)
    assert caught.value.reason == "python-side-effect"
    assert "a Parameter of shape (3, 4)" in str(caught.value)
    assert "return weight + 1" in str(caught.value)
    record(lambda: x * 2 + 1, [x])


def test_a_step_that_makes_a_table_at_its_first_run_is_recorded(x: Tensor) -> None:
    table: list[Tensor] = []

    def step() -> object:
        if not table:
            table.append(torch.arange(4.0))
        return x + table[0]

    check_replays(step, [x])


def test_a_step_that_fails_while_recorded_names_its_line_and_is_undone(x: Tensor) -> None:
    cache = torch.zeros(3, 4)
    runs: list[int] = []

    def step() -> object:
        cache.add_(x)
        runs.append(0)
        if len(runs) == 3:
            raise KeyError("third run")
        return cache * 2

    with pytest.raises(CaptureError, match="KeyError") as caught:
        record(step, [x], [cache])
    assert caught.value.reason == "capture-error"
    assert 'raise KeyError("third run")' in str(caught.value)
    assert cache.eq(0).all()


def test_tensors_on_other_devices_are_refused(x: Tensor) -> None:
    with pytest.raises(CaptureError, match="dense tensors on the CPU"):
        record(lambda: (x * 2, torch.empty(2, device="meta") + 1), [x])


def test_a_released_recording_does_not_replay_and_holds_nothing(x: Tensor) -> None:
    recording = record(lambda: x * 2, [x])
    recording.release()
    recording.release()
    assert recording.result is None
    assert not recording._namespace
    with pytest.raises(InternalError, match="released"):
        recording.replay()


def test_calls_of_other_threads_are_not_recorded(x: Tensor) -> None:
    def step() -> object:
        other = threading.Thread(target=lambda: torch.ones(3).add_(1).sum())
        other.start()
        other.join()
        return x * 2

    with torch.no_grad():
        assert record(step, [x]).nodes == 1


def test_a_recording_replays_in_another_thread(x: Tensor) -> None:
    recording = record(lambda: x * 2 + 1, [x])
    put([torch.ones(3, 4)], [x])
    thread = threading.Thread(target=recording.replay)
    thread.start()
    thread.join()
    assert isinstance(recording.result, Tensor)
    assert recording.result.eq(3).all()


def test_a_replay_does_not_change_grad_mode(x: Tensor) -> None:
    recording = record(lambda: x * 2, [x])
    with torch.enable_grad():
        recording.replay()
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


@pytest.mark.slow
def test_compiled_code_inside_is_recorded_as_it_was_written(x: Tensor) -> None:
    compiled = torch.compile(lambda t: torch.nn.functional.silu(t * 2), backend="eager")
    compiled(x)  # compiled beforehand: its code is in the cache
    recording = check_replays(lambda: compiled(x) + 1, [x])
    assert recording.nodes == 3


def test_recording_imports_no_compiler() -> None:
    code = (
        "import sys, torch; sys.path.insert(0, 'tests')\n"
        "from graphs.backends.taping import record\n"
        "x = torch.ones(2)\n"
        "with torch.no_grad(): record(lambda: x + 1, [x])\n"
        "print('torch._dynamo' in sys.modules)"
    )
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_fill_copies_whatever_the_strides_and_types(dtype: torch.dtype) -> None:
    statics = [torch.zeros(2, 3), torch.zeros(3, 2).T, torch.zeros(2, 3, dtype=torch.int64)]
    given = [torch.arange(6).view(2, 3).to(dtype) for _ in statics]
    tape.backend().fill(statics, given)
    for static, tensor in zip(statics, given, strict=True):
        assert static.eq(tensor).all()


def test_fill_takes_inference_tensors_leaves_that_require_grad_and_nothing() -> None:
    with torch.inference_mode():
        inference = torch.zeros(2)
    leaf = torch.zeros(2, requires_grad=True)
    with torch.enable_grad():
        tape.backend().fill([inference, leaf], [torch.ones(2), torch.ones(2, requires_grad=True)])
        tape.backend().fill([], [])
    assert inference.eq(1).all()
    assert leaf.eq(1).all()
    assert leaf.grad_fn is None


def test_time_is_the_median_without_the_first_run_and_without_what_comes_before() -> None:
    runs: list[str] = []

    def noting(name: str) -> Callable[[], None]:
        return lambda: runs.append(name)

    microseconds = tape.backend().time_us(
        noting("run"), before=noting("before"), device=CPU, repeats=3
    )
    assert runs == ["before", "run"] * 4
    assert 0 < microseconds < 1e6


def test_recording_honours_the_number_of_warm_ups(x: Tensor) -> None:
    runs: list[int] = []

    def step() -> object:
        runs.append(0)
        return x + 1

    observation = observe(step, [x], device=CPU)
    runs.clear()
    restored: list[int] = []
    tape.backend().record(
        step,
        inputs=[x],
        device=CPU,
        warmups=3,
        observation=observation,
        restore=lambda: restored.append(0),
    )
    assert (len(runs), len(restored)) == (4, 4)


@pytest.mark.parametrize(
    "step",
    [
        lambda x: (x * 2).sum() + torch.nn.functional.mse_loss(x, x * 3),
        lambda x: torch.where(x > 0, x, torch.zeros((), device="cpu"))[None] @ x.t(),
        lambda x: torch.topk(x, 2).values + torch.tensor(1.0, device="cpu"),
        lambda x: x[:0] * 2,
    ],
)
def test_the_default_device_does_not_redirect_the_tape(
    step: Callable[[Tensor], object], x: Tensor
) -> None:
    expected = step(x)
    elsewhere = record(lambda: step(x), [x])
    with torch.device("meta"):
        recording = record(lambda: step(x), [x])
        recording.replay()
    assert recording.nodes == elsewhere.nodes
    torch.testing.assert_close(recording.result, expected)


def test_autocast_turned_off_inside_the_step_is_off_in_replays() -> None:
    """A call without a variant for given memory goes through autocast's own dispatch."""
    library = torch.library.Library("ostinato_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    cast = torch.library.Library("ostinato_test", "IMPL", "AutocastCPU")

    def twice_in_half(x: Tensor) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        ):
            return torch.ops.ostinato_test.twice(x.bfloat16()).float()

    cast.impl("twice", twice_in_half)
    try:
        x = torch.tensor([1.001, 2.002])

        def step() -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return torch.ops.ostinato_test.twice(x) + 0

        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            recording = record(step, [x])
            expected = step()
            recording.replay()
        torch.testing.assert_close(recording.result, expected, rtol=0, atol=0)
    finally:
        cast._destroy()
        library._destroy()


@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch has no gloo",
)
def test_a_collective_on_the_cpu_is_refused_before_a_second_one_is_made(
    x: Tensor, tmp_path: Path
) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    runs = []

    def step() -> Tensor:
        runs.append(1)
        y = x * 2
        torch.distributed.all_reduce(y)
        return y

    try:
        with pytest.raises(CaptureError, match=r"c10d\.allreduce_.*all_reduce") as caught:
            record(step, [x])
    finally:
        torch.distributed.destroy_process_group()
    assert caught.value.reason == "capture-error"
    assert len(runs) == 1


def test_a_replay_is_straight_line_code_that_calls_torch_and_nothing_of_ours() -> None:
    weight = torch.randn(4, 4)
    cache = torch.zeros(8, 4)
    at = torch.tensor([2])

    def step() -> dict[str, object]:
        y = x @ weight
        cache.index_copy_(0, at, y[:1])
        low, high = torch.aminmax(y, dim=-1)
        return {"y": y.relu(), "range": [low, (high, cache[:3].sum(0))]}

    x = torch.randn(2, 4)
    recording = record(step, [x], [cache])
    code = recording.replay.__code__  # type: ignore[attr-defined]
    # Not by jumps: from 3.12 on the way out of a `with` goes by one.
    loops = [each.opname for each in dis.get_instructions(code) if "ITER" in each.opname]
    assert not loops
    called = [
        held for held in map(recording._namespace.get, code.co_names)
        if callable(held) and not isinstance(held, Tensor)
    ]  # fmt: skip
    assert len(called) >= recording.nodes
    assert not [each for each in called if type(each).__name__ == "function"]
    assert not [each for each in called if str(getattr(each, "__module__", "")).startswith("ost")]
