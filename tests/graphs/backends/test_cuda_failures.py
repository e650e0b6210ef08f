"""What went wrong while recording on CUDA becomes one reason and one line. No GPU needed."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from ostinato.errors import CaptureError
from ostinato.graphs.backends import cuda, cuda_capture, cuda_failures, cuda_waits
from ostinato.graphs.backends.cuda_waits import device_waits_held_back
from ostinato.graphs.reasons import Reason

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@dataclass
class Refusal:
    reason: Reason
    op: str
    where: str | None
    detail: str


@dataclass
class Seen:
    ops: int = 1
    refusals: list[Refusal] = field(default_factory=list)
    externals: list[torch.Tensor] = field(default_factory=list)
    generators: list[torch.Generator] = field(default_factory=list)
    devices: frozenset[torch.device] = frozenset({GPU})


def refuse(seen: Seen) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        cuda.backend().record(
            lambda: None,
            inputs=[],
            device=GPU,
            warmups=0,
            observation=seen,  # type: ignore[arg-type]
            restore=lambda: None,
        )
    return caught.value


def test_the_first_refusal_of_the_observed_run_is_the_one_reported() -> None:
    first = Refusal(Reason.HOST_SYNC, "Tensor.item", "model.py:88 `x.item()`", "it waits")
    second = Refusal(Reason.HOST_COPY, "aten.copy_", None, "it copies")
    error = refuse(Seen(refusals=[first, second]))
    assert error.reason == "host-sync"
    assert "Tensor.item at model.py:88 `x.item()`" in str(error)
    assert "keep the value on the device" in error.remedy


def test_inside_a_graph_of_the_users_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    error = refuse(Seen())
    assert error.reason == "nested-call"
    assert "capturing another graph" in str(error)


def test_a_generator_of_another_device_is_refused() -> None:
    error = refuse(Seen(generators=[torch.Generator(CPU)], devices=frozenset({CPU, GPU})))
    assert error.reason == "unregistered-generator"
    assert "generator on cpu" in str(error)


def test_a_second_device_is_refused_by_name() -> None:
    error = refuse(Seen(devices=frozenset({GPU, torch.device("cuda", 1)})))
    assert error.reason == "several-devices"
    assert "runs on cuda:1 besides cuda:0" in str(error)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CUDA error: operation not permitted when stream is capturing", "host-sync"),
        ("philox_cuda_state for an unexpected CUDA generator used", "unregistered-generator"),
        ("Cannot copy ... unless the CPU tensor is pinned", "host-copy"),
        ("something nobody foresaw", "capture-error"),
        ("", "capture-error"),
    ],
)
def test_the_text_of_an_error_decides_its_reason(text: str, reason: str) -> None:
    assert cuda_failures.explained(RuntimeError(text)).reason == reason


def test_the_line_that_raised_is_in_the_problem() -> None:
    try:
        raise ValueError("no such head")  # the guilty line
    except ValueError as error:
        explained = cuda_failures.explained(error)
    assert "the guilty line" in str(explained)
    assert "ValueError: no such head" in str(explained)


def test_only_a_capture_broken_by_something_else_is_worth_another_try() -> None:
    own = RuntimeError("cudaErrorStreamCaptureUnsupported: not permitted when stream is capturing")
    other = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    assert not cuda_failures.invalidated_from_outside(own)
    assert cuda_failures.invalidated_from_outside(other)
    by_cublas = RuntimeError(
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"
    )
    assert cuda_failures.invalidated_from_outside(by_cublas)


@pytest.mark.parametrize("door", ["_cuda_synchronize", "_accelerator_synchronizeDevice"])
def test_another_thread_waits_for_a_device_when_the_capture_is_over(
    monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(torch._C, door, lambda *_: said.append("waited"), raising=False)
    before = getattr(torch._C, door)
    lock = threading.RLock()
    with ThreadPoolExecutor(1) as pool:
        with lock:
            with device_waits_held_back(lock):
                other = pool.submit(getattr(torch._C, door), 0)
                said.append("captured")
            assert getattr(torch._C, door) is before
            said.append("over")
        other.result(timeout=600)
    assert said == ["captured", "over", "waited"]


def test_the_capturing_thread_gets_cudas_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch._C, "_cuda_synchronize", forbid, raising=False)
    lock = threading.RLock()
    with lock, device_waits_held_back(lock), pytest.raises(RuntimeError, match="not permitted"):
        torch._C._cuda_synchronize()
    assert torch._C._cuda_synchronize is forbid  # also where it raised


def test_a_thread_that_the_capture_waits_for_gets_cudas_own_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch._C, "_cuda_synchronize", lambda: "answered", raising=False)
    monkeypatch.setattr(cuda_waits, "_LONGEST_WAIT_S", 0.01)
    lock = threading.RLock()
    with ThreadPoolExecutor(1) as pool, lock, device_waits_held_back(lock):
        assert pool.submit(torch._C._cuda_synchronize).result(timeout=600) == "answered"


def test_the_collector_and_the_autocast_cache_come_back_after_an_error() -> None:
    def broken() -> None:
        with cuda_capture.undisturbed():
            assert not gc.isenabled()
            assert not torch.is_autocast_cache_enabled()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert gc.isenabled()
    assert torch.is_autocast_cache_enabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with cuda_capture.undisturbed():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_inductors_own_graphs_raise_in_the_recording_thread_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Manager:
        def _run(self, value: int) -> int:
            return value

    module = SimpleNamespace(CUDAGraphTreeManager=Manager)
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", module)
    before = Manager._run
    with (
        pytest.raises(cuda_failures.InductorGraphInside),
        cuda_capture.refusing_inductor_graphs(),
    ):
        Manager()._run(1)
    assert Manager._run is before
    assert cuda_failures.explained(cuda_failures.InductorGraphInside("x")).reason == (
        "compiled-inside"
    )
