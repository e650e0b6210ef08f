"""A watch is never the first to use CUDA: a program may use it in forked children alone.

There is no GPU here, so what torch asks of the driver is pretended; that torch begins with a
queue of calls, and when, is torch's own code.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ostinato.doctor.collect import allocator, subject
from ostinato.doctor.collect.gpu_use import once_used
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.watching import Choices, Watch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and it is used")

CLOSELY = Choices(profile=True, trials=True, whole_program=True)
ASKS_THE_DRIVER = {"_cuda_init": None, "_cuda_getDeviceCount": 1, "_cuda_getDevice": 0}
A_GPU = SimpleNamespace(name="GPU", total_memory=1, multi_processor_count=1, major=9, minor=0)


class Driver:
    """What was asked of the driver, and how torch was told to speak of waits."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tells = 0

    def tell(self, mode: int) -> None:
        self.asked.append("_cuda_set_sync_debug_mode")
        self.tells = mode

    def told(self) -> int:
        self.asked.append("_cuda_get_sync_debug_mode")
        return self.tells


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Let torch take this machine for one with a GPU that nobody has used yet."""
    pretended = Driver()

    def asks(name: str, answer: int | None) -> None:
        def ask() -> int | None:
            pretended.asked.append(name)
            return answer

        monkeypatch.setattr(torch._C, name, ask, raising=False)

    for name, answer in ASKS_THE_DRIVER.items():
        asks(name, answer)
    monkeypatch.setattr(torch._C, "_cuda_set_sync_debug_mode", pretended.tell, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_get_sync_debug_mode", pretended.told, raising=False)
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 1)
    monkeypatch.setattr(torch.cuda, "_cudart", object())
    monkeypatch.setattr(torch.cuda, "_queued_calls", [])
    monkeypatch.setattr(torch.cuda, "_lazy_seed_tracker", torch.cuda._LazySeedTracker())
    monkeypatch.setattr(torch.cuda, "_initialized", False)
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", Ranges())
    yield pretended
    subject._machine.cache_clear()


class Ranges:
    """Marks for a profiler; they use no device."""

    rangePushA = rangePop = markA = staticmethod(lambda *_: 0)


def run_steps() -> None:
    model = nn.Linear(2, 2)
    for _ in range(40):
        model(torch.ones(1, 2)).sum().item()
    with torch.autocast("cpu"):
        query = torch.ones(1, 1, 4, 8)
        nn.functional.scaled_dot_product_attention(query, query, query)


def asked_in_a_child(driver: Driver) -> str:
    """Begin to use CUDA in a forked child; return what was asked of the driver there."""
    reads, writes = os.pipe()
    if not (child := os.fork()):
        try:
            torch.cuda.init()
            os.write(writes, " ".join(driver.asked).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


def watched(driver: Driver) -> tuple[Evidence, str]:
    with warnings.catch_warnings(), Watch(choices=CLOSELY) as watch:
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside other threads
        run_steps()
        watch.so_far()
        in_the_child = asked_in_a_child(driver)
    return watch.evidence, in_the_child


def test_a_watch_does_not_begin_to_use_cuda_and_a_forked_child_can(driver: Driver) -> None:
    evidence, in_the_child = watched(driver)
    assert driver.asked == []
    assert in_the_child == "_cuda_init"
    assert evidence.subject.device == "cuda"
    assert not [problem for problem in evidence.problems if "not recorded" in problem]
    assert not [problem for problem in evidence.problems if "stop well" in problem]


def test_when_the_program_begins_torch_is_asked_to_tell_of_waits(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: A_GPU)
    monkeypatch.setattr(allocator, "uses_gpu", lambda: False)  # there is no memory to look at
    driver.tells = 2
    watch = Watch(choices=Choices(sample=False)).start()
    try:
        assert driver.tells == 2
        torch.cuda.init()
        assert driver.tells == 1
    finally:
        evidence = watch.stop()
    assert driver.tells == 2
    assert (evidence.subject.accelerator, evidence.subject.capability) == ("GPU", "9.0")


def test_a_watch_that_is_over_asks_for_nothing_when_the_program_begins(driver: Driver) -> None:
    with Watch(choices=Choices(sample=False)):
        pass
    torch.cuda.init()
    assert driver.asked == ["_cuda_init"]


def test_what_fails_when_the_program_begins_costs_the_program_nothing(driver: Driver) -> None:
    def fail() -> None:
        raise RuntimeError("no mode for waits")

    once_used(fail)
    torch.cuda.init()
    assert torch.cuda.is_initialized()


def test_a_program_that_uses_cuda_already_is_listened_to_at_once(driver: Driver) -> None:
    torch.cuda.init()
    heard: list[int] = []
    once_used(lambda: heard.append(1))
    assert heard == [1]
