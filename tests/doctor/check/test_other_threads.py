"""Threads that a checked call starts: their lines are told, and nothing of theirs is a yes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from ostinato.doctor.check.run import check
from ostinato.doctor.check.verdict import Verdict


def in_a_thread(x: Tensor) -> Tensor:
    out: list[float] = []
    other = threading.Thread(target=lambda: out.append(x.sum().item()))
    other.start()
    other.join()
    return x * out[0]


def in_a_pool(x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return x * pool.submit(lambda: x.sum().item()).result()


def without_a_read(x: Tensor) -> Tensor:
    out: list[Tensor] = []
    other = threading.Thread(target=lambda: out.append(x + 1))
    other.start()
    other.join()
    return x * 2


def on_the_host(x: Tensor) -> Tensor:
    other = threading.Thread(target=lambda: sum(range(9)))
    other.start()
    other.join()
    return x * 2


@pytest.mark.parametrize("step", [in_a_thread, in_a_pool])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_read_in_another_thread_is_a_wait_at_its_own_line(
    step: object, device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    checked = check(lambda: (step, torch.ones(3, device=device)))
    assert checked.verdict is Verdict.NOT_CAPTURABLE
    [blocker] = checked.blockers
    assert blocker.reason == "host-sync"
    assert blocker.place is not None
    assert "x.sum().item()" in blocker.place.code
    assert "another thread reads" in blocker.detail
    assert capfd.readouterr().err == ""


def test_a_thread_that_only_computes_leaves_the_verdict_open() -> None:
    checked = check(lambda: (without_a_read, torch.ones(3, device="cuda")))
    assert checked.verdict is Verdict.UNKNOWN
    [gap] = checked.gaps
    assert "what another thread of the call does with tensors (aten.add.Tensor)" in gap.what
    assert gap.place is not None
    assert "out.append(x + 1)" in gap.place.code


def test_a_thread_without_tensors_changes_nothing() -> None:
    checked = check(lambda: (on_the_host, torch.ones(3, device="cuda")))
    assert checked.verdict is Verdict.CAPTURABLE
