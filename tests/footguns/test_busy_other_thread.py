"""Another thread works while a recording is made (LibreYOLO#681, pytorch#188832: invalidated)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from graphs.replaying import check_replay
from ostinato import Outcome, graphed


@contextmanager
def looping(work: Callable[[], object]) -> Iterator[None]:
    """Do `work` over and over in another thread, which must still be alive at the end."""
    over, started = threading.Event(), threading.Event()
    failures: list[BaseException] = []
    rounds = 0

    def loop() -> None:
        nonlocal rounds
        try:
            while not over.is_set():
                work()
                rounds += 1
                started.set()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must see it
            failures.append(error)
            started.set()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        assert started.wait(600)
        before = rounds
        yield
        assert not failures, failures
        assert thread.is_alive()
    finally:
        over.set()
        thread.join(600)
    assert not failures, failures
    assert rounds > before, "the other thread did nothing meanwhile"


def record_many(device: torch.device) -> None:
    """Record a dozen signatures one after another; each must succeed at once and be right."""
    module = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    with graphed(module, admit_after=1) as g:
        for rows in range(1, 13):
            g(torch.randn(rows, 16, device=device))
            assert g.last is not None
            assert g.last.outcome is Outcome.RECORDED, g.last
            check_replay(g, torch.randn(rows, 16, device=device))


def says_it_captures() -> bool:
    try:
        return torch.cuda.is_current_stream_capturing()
    except RuntimeError:  # a torch that is built without CUDA
        return False


@pytest.mark.gpu
def test_a_thread_that_pins_memory_survives_and_so_does_the_recording() -> None:
    with looping(lambda: torch.empty(1 << 16).pin_memory()):
        record_many(torch.device("cuda:0"))


@pytest.mark.gpu
def test_a_loader_that_pins_its_batches_goes_on() -> None:
    loader = DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=4, pin_memory=True)

    def epoch() -> None:
        for (batch,) in loader:
            batch.to("cuda:0", non_blocking=True)

    with looping(epoch):
        record_many(torch.device("cuda:0"))


@pytest.mark.gpu
def test_a_thread_that_allocates_and_computes_on_its_own_stream_goes_on() -> None:
    stream = torch.cuda.Stream()
    # Its own: torch lends the default generator to every capture for a moment, and a thread that
    # draws from it in that moment gets an error that nobody outside torch can prevent.
    dice = torch.Generator("cuda:0")

    def work() -> None:
        with torch.cuda.stream(stream):
            x = torch.randn(256, 256, device="cuda:0", generator=dice)
            total = (x @ x).sum()
            stream.synchronize()
            assert torch.isfinite(total).item()

    with looping(work):
        record_many(torch.device("cuda:0"))


@pytest.mark.gpu
def test_a_thread_that_makes_cuda_allocate_anew_goes_on() -> None:
    def work() -> None:
        torch.empty(3 << 20, dtype=torch.uint8, device="cuda:0")
        torch.cuda.empty_cache()

    with looping(work):
        record_many(torch.device("cuda:0"))


@pytest.mark.gpu
@pytest.mark.parametrize("wait", [torch.cuda.synchronize, torch.accelerator.synchronize])
def test_a_thread_that_waits_for_the_device_goes_on_and_so_does_the_recording(
    wait: Callable[[], None],
) -> None:
    with looping(wait):
        record_many(torch.device("cuda:0"))


@pytest.mark.gpu
def test_a_thread_that_reads_a_value_on_its_own_stream_goes_on() -> None:
    stream = torch.cuda.Stream()
    x = torch.ones(64, device="cuda:0")
    torch.cuda.synchronize()

    def work() -> None:
        with torch.cuda.stream(stream):
            assert x.sum().item() == 64

    with looping(work):
        record_many(torch.device("cuda:0"))


@pytest.mark.gpu
def test_a_capture_that_another_library_breaks_is_made_later() -> None:
    """It waits for the device past torch: its wait fails, and so may each of our attempts."""
    driver = ctypes.CDLL("libcuda.so.1")
    device = torch.device("cuda:0")
    module = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    module.requires_grad_(False)

    def work() -> None:
        torch.cuda.current_stream(device).query()  # makes the context this thread's own
        driver.cuCtxSynchronize()

    with graphed(module, admit_after=1) as g:
        with looping(work):
            for _ in range(16):
                x = torch.randn(3, 16, device=device)
                torch.testing.assert_close(g(x), module(x), rtol=1e-4, atol=1e-5)
        assert set(g.report().reasons) <= {"capture-error", "being-recorded"}, g.report().reasons
        for _ in range(1024):  # the longest that a signature waits for its next attempt
            g(torch.randn(3, 16, device=device))
            assert g.last is not None
            if g.last.outcome is Outcome.REPLAYED:
                break
        check_replay(g, torch.randn(3, 16, device=device))


def test_what_another_thread_computes_is_no_part_of_the_recording(device: torch.device) -> None:
    def record() -> int:
        g = graphed(lambda x: torch.tanh(x * 2) + 1, admit_after=1)
        g(torch.zeros(4, device=device))
        return g.report().graphs[0].nodes

    quiet = record()
    private = torch.ones(64, device=device)

    def work() -> None:
        private.mul_(1.0).add_(0.0)
        # What a recording would refuse, in a thread that records not.
        private[private > 0].tolist()
        torch.cpu.synchronize()
        if device.type == "cpu":
            torch.utils.dlpack.to_dlpack(private)
        assert not says_it_captures()

    if device.type == "cuda":
        stream = torch.cuda.Stream()
        plain = work

        def work() -> None:
            with torch.cuda.stream(stream):
                plain()

    with looping(work):
        assert [record() for _ in range(5)] == [quiet] * 5
        record_many(device)


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA")
def test_a_thread_that_runs_the_same_module_eagerly_is_right(device: torch.device) -> None:
    module = nn.Linear(16, 16).to(device).requires_grad_(False)
    x = torch.randn(4, 16, device=device)
    wanted = module(x)
    if device.type == "cuda":
        torch.cuda.synchronize()

    def work() -> None:
        torch.testing.assert_close(module(x), wanted, rtol=1e-4, atol=1e-5)

    with looping(work), graphed(module, admit_after=1) as g:
        for rows in range(1, 9):
            given: Tensor = torch.randn(rows, 16, device=device)
            torch.testing.assert_close(g(given), module(given), rtol=1e-4, atol=1e-5)
            assert g.last is not None
            assert g.last.outcome is Outcome.RECORDED, g.last
