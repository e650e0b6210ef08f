"""Watch: it sees the block, changes nothing in it, and leaves the process as it was found."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional
from torch import nn
from torch.utils._device import _device_constructors

from ostinato import doctor
from ostinato.doctor.evidence import Ending, from_json, to_json
from ostinato.doctor.watching import Choices, Watch
from ostinato.errors import UsageError

WATCHED: list[tuple[Any, str]] = [
    (torch.Tensor, "item"),
    (torch.Tensor, "__bool__"),
    (torch.Tensor, "__getitem__"),
    (torch.Tensor, "contiguous"),
    (torch.Tensor, "to"),
    (torch.nn.functional, "scaled_dot_product_attention"),
    (torch.nn.Module, "__call__"),
    (torch.cuda, "synchronize"),
    (torch.jit, "script"),
    (asyncio.events.Handle, "_run"),
    (threading, "Lock"),
]


def state() -> list[tuple[object, bool]]:
    return [(getattr(owner, name), name in vars(owner)) for owner, name in WATCHED]


def test_everything_is_put_back() -> None:
    before = state(), list(gc.callbacks), threading.active_count()
    with Watch():
        assert state() != before[0]
    assert (state(), list(gc.callbacks), threading.active_count()) == before


def test_everything_is_put_back_when_the_block_raises_and_the_error_is_told() -> None:
    before = state()
    watching = Watch()
    with pytest.raises(KeyError), watching:
        raise KeyError("batch")
    assert state() == before
    assert watching.evidence.subject.ending is Ending.RAISED
    assert "KeyError" in watching.evidence.subject.detail


def test_steps_are_the_calls_of_the_outermost_module() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    with Watch() as watching:
        for _ in range(12):
            model(torch.ones(2, 4))
    assert (watching.evidence.step_name, watching.evidence.steps_seen) == ("Sequential", 12)
    assert watching.evidence.callables[0].signatures[0].text == "float32[2, 4]"


def test_marked_steps_come_before_modules() -> None:
    with doctor.watch() as watching:
        for _ in range(5):
            with doctor.step("request"):
                nn.Linear(2, 2)(torch.ones(1, 2))
    assert (watching.evidence.step_name, watching.evidence.steps_seen) == ("request", 5)


def test_a_step_without_a_watch_is_nothing() -> None:
    with doctor.step():
        assert torch.ones(1).item() == 1


def test_a_second_watch_is_refused_and_the_first_goes_on() -> None:
    with Watch() as first:
        with pytest.raises(UsageError) as caught:
            Watch().start()
        assert caught.value.code == "OST7023"
        torch.ones(1).item()
    assert [wait.op for wait in first.evidence.waits] == ["Tensor.item"]


def test_a_watch_can_follow_another() -> None:
    for _ in range(2):
        with Watch() as watching:
            torch.ones(1).tolist()
        assert len(watching.evidence.waits) == 1


def test_what_is_on_the_host_by_now_is_not_waited_for_again() -> None:
    with Watch() as watching:
        for _ in range(3):
            y = torch.ones(2)
            y.cpu().numpy()
            y.to("cpu").tolist()
    waits = watching.evidence.waits
    assert {wait.op for wait in waits} <= {"Tensor.cpu", "Tensor.to"}
    assert sum(wait.count for wait in waits) == (0 if torch.cuda.is_available() else 6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a tensor on the host is one there")
def test_two_tensors_shown_are_two_waits() -> None:
    with Watch() as watching:
        first, second = torch.ones(2), torch.ones(2)
        first.cpu()
        second.tolist()
    assert sorted(wait.op for wait in watching.evidence.waits) == ["Tensor.cpu", "Tensor.tolist"]


def test_results_and_errors_of_what_is_watched_are_its_own() -> None:
    with Watch():
        assert torch.tensor([[1, 2], [3, 4]])[0].tolist() == [1, 2]
        assert torch.tensor([1.0, 2.0])[torch.tensor([True, False])].item() == 1.0
        with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
            torch.ones(2).item()
        with pytest.raises(IndexError):
            torch.ones(2)[5]


def test_a_forked_child_is_not_watched() -> None:
    original = torch.Tensor.item
    with warnings.catch_warnings(), Watch():
        warnings.simplefilter("ignore")  # that a process with threads forks is the point here
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.Tensor.item is original else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_collector_that_fails_costs_its_own_evidence_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ostinato.doctor.collect.syncs import Syncs

    def refuse(_: object) -> None:
        raise OSError("no permission for this counter")

    monkeypatch.setattr(Syncs, "start", refuse)
    with Watch() as watching:
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert "waits" not in watching.evidence.collected
    assert watching.evidence.steps_seen == 1
    assert any("no permission for this counter" in text for text in watching.evidence.problems)


def test_compiled_code_has_no_more_graphs_for_being_watched() -> None:
    torch.compiler.reset()  # it counts compilations over all tests of a process
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    with Watch() as watching:
        step = torch.compile(model, backend="eager", fullgraph=True)
        for _ in range(4):
            step(torch.ones(2, 4))
    assert watching.evidence.compile is not None
    assert watching.evidence.compile.graphs == 1
    assert watching.evidence.compile.recompiles == ()


def test_torchscript_compiles_while_somebody_watches() -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    with warnings.catch_warnings(), Watch():
        warnings.simplefilter("ignore")  # torch.jit warns that it will go
        scripted = torch.jit.script(Attention())
    assert scripted(torch.ones(1, 1, 2, 2)).shape == (1, 1, 2, 2)


def test_a_lock_of_the_program_works_as_before() -> None:
    with Watch():
        lock = threading.Lock()
        condition = threading.Condition(threading.Lock())
    assert lock.acquire()
    assert not lock.acquire(blocking=False)
    assert lock.locked()
    lock.release()
    with condition:
        condition.notify_all()


def test_evidence_survives_being_saved() -> None:
    with Watch(choices=Choices(host=True)) as watching:
        for _ in range(3):
            nn.Linear(2, 2)(torch.ones(1, 2)).tolist()
    evidence = watching.evidence
    assert from_json(to_json(evidence)) == evidence
    assert evidence.host is not None


def test_modules_that_replace_one_another_at_a_line_make_the_steps_together() -> None:
    """Whether or not a new one lies at the address of one that is gone."""
    others: list[nn.Module] = []
    with Watch() as watching:
        for turn in range(100):
            module = nn.Linear(2, 2)
            module(torch.ones(1, 2))
            del module
            if turn % 3 == 0:
                others.append(nn.Linear(2, 2))  # takes the address, maybe
    assert watching.report().steps == 100


def test_the_report_of_a_watch_prints_as_text() -> None:
    with Watch() as watching:
        for _ in range(20):
            nn.Linear(2, 2)(torch.ones(1, 2)).sum().item()
    assert "OST101 host-sync-in-step" in str(watching.report())


def test_tensors_are_made_on_the_chosen_device_while_somebody_watches_and_after() -> None:
    _device_constructors.cache_clear()  # as in a process that never chose one
    with Watch(), torch.device("meta"):
        assert torch.tensor([1.0]).device.type == "meta"
        assert torch.ones(1).device.type == "meta"
    with torch.device("meta"):
        assert torch.get_default_device().type == "meta"
        assert torch.tensor([1.0]).device.type == "meta"


def test_what_is_compiled_after_a_watch_finds_torch_as_it_is() -> None:
    torch.compiler.reset()
    with Watch():
        torch.compile(lambda x: x + torch.tensor(1.0), backend="eager")(torch.ones(2))
    rules = sys.modules["torch._dynamo.trace_rules"].get_torch_obj_rule_map()
    assert torch.tensor in rules
