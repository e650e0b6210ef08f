"""A runner: decisions, options at run time, copies, and giving memory back."""

import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.errors import CaptureError, UsageError
from ostinato.graphs import Buckets, Outcome, Reason, graphed


def double(x: Tensor) -> Tensor:
    return x * 2


@graphed
def decorated(x: Tensor) -> Tensor:
    return x + 1


def decision(runner: Any) -> tuple[str, str | None]:
    last = runner.last
    return last.outcome.value, None if last.reason is None else str(last.reason)


def test_a_call_is_eager_then_recorded_then_replayed(device: torch.device) -> None:
    runner = graphed(double)
    assert runner.last is None
    seen = []
    for step in range(4):
        x = torch.full((3,), float(step), device=device)
        assert torch.equal(runner(x), x * 2)
        seen.append(decision(runner))
    assert seen == [
        ("eager", "not-admitted-yet"),
        ("recorded", None),
        ("replayed", None),
        ("replayed", None),
    ]
    assert runner.last is not None
    assert runner.last.graph_id == "double#1"


@pytest.mark.parametrize("admit_after", [1, 3])
def test_a_signature_is_recorded_at_its_nth_call(admit_after: int, device: torch.device) -> None:
    runner = graphed(double, admit_after=admit_after)
    x = torch.ones(2, device=device)
    outcomes = [runner(x) is not None and runner.last.outcome for _ in range(admit_after + 1)]  # type: ignore[union-attr]
    assert outcomes[admit_after - 1 :] == [Outcome.RECORDED, Outcome.REPLAYED]
    assert set(outcomes[: admit_after - 1]) <= {Outcome.EAGER}


def test_the_eager_backend_records_nothing(device: torch.device) -> None:
    runner = graphed(double, backend="eager", admit_after=1)
    for _ in range(3):
        runner(torch.ones(2, device=device))
    assert decision(runner) == ("eager", "eager-backend")
    assert runner.report().graphs == ()
    assert runner.warm(torch.ones(2, device=device)).reason is Reason.EAGER_BACKEND


def test_the_tape_does_not_record_on_a_gpu_nor_the_other_way_round() -> None:
    runner = graphed(double, backend="tape", admit_after=1)
    y = runner(torch.ones(2, device="meta"))
    assert y.device.type == "meta"
    assert decision(runner) == ("eager", "unsupported-device")


def test_an_empty_batch_runs_eagerly(device: torch.device) -> None:
    runner = graphed(double, admit_after=1)
    assert runner(torch.empty(0, 4, device=device)).shape == (0, 4)
    assert decision(runner) == ("eager", "empty-batch")
    assert "x has shape [0, 4]" in runner.last.detail  # type: ignore[union-attr]


# warm: ahead of a call, without a trace.


def test_warm_records_and_changes_nothing(device: torch.device) -> None:
    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), device=device))
            self.norm = nn.BatchNorm1d(4, device=device)

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            x.mul_(2)
            return self.norm(x) + torch.rand_like(x)

    module = Step()
    runner = graphed(module)
    x = torch.randn(3, 4, device=device)
    x_before, state_before = x.clone(), copy.deepcopy(module.state_dict())
    random_before = _random_state(device)
    with torch.no_grad():
        assert runner.warm(x).outcome is Outcome.RECORDED
        assert torch.equal(x, x_before)
        for name, value in module.state_dict().items():
            assert torch.equal(value, state_before[name]), name
        assert torch.equal(_random_state(device), random_before)
        assert runner.report().calls == 0
        assert runner.warm(x).outcome is Outcome.REPLAYED
        runner(x)
    assert decision(runner) == ("replayed", None)
    assert module.count == 1


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()


def test_warm_that_is_refused_counts_no_call(device: torch.device) -> None:
    runner = graphed(lambda x: x.sum().item())
    found = runner.warm(torch.ones(2, device=device))
    assert (found.outcome, found.reason) == (Outcome.EAGER, Reason.HOST_SYNC)
    assert runner.report().calls == 0
    runner(torch.ones(2, device=device))
    assert runner.report().calls == 1


def test_warm_passes_on_why_a_call_fits_no_bucket(device: torch.device) -> None:
    runner = graphed(double, buckets={"x": Buckets(dim=0, sizes=(2, 4))})
    assert runner.warm(torch.ones(5, device=device)).reason is Reason.OUTSIDE_BUCKETS


# on_unfit="raise"


def test_raising_names_the_reason_and_leaves_no_trace(device: torch.device) -> None:
    runs = []
    state = torch.zeros((), device=device)

    def step(x: Tensor) -> Tensor:
        runs.append(1) if False else None
        state.add_(1)
        return x * float(x.sum())

    runner = graphed(step, on_unfit="raise", admit_after=1)
    for _ in range(2):
        with pytest.raises(CaptureError) as caught:
            runner(torch.ones(2, device=device))
        assert caught.value.code == caught.value.reason == "host-sync"
        assert "test_runner.py" in str(caught.value)
    assert state == 0


def test_raising_leaves_a_recordable_function_run_once(device: torch.device) -> None:
    state = torch.zeros((), device=device)

    def step(x: Tensor) -> Tensor:
        state.add_(1)
        return x + state

    runner = graphed(step, on_unfit="raise", admit_after=1)
    assert runner(torch.zeros(2, device=device)).tolist() == [1.0, 1.0]
    assert decision(runner) == ("recorded", None)
    assert runner(torch.zeros(2, device=device)).tolist() == [2.0, 2.0]
    assert decision(runner) == ("replayed", None)
    assert state == 2


def test_raising_blames_the_call_with_a_usage_error(device: torch.device) -> None:
    runner = graphed(double, on_unfit="raise", buckets={"x": Buckets(dim=0, sizes=(2,))})
    with pytest.raises(UsageError) as caught:
        runner(torch.ones(3, device=device))
    assert caught.value.code == "outside-buckets"


def test_what_passes_by_itself_does_not_raise(device: torch.device) -> None:
    runner = graphed(double, on_unfit="raise")
    runner(torch.ones(2, device=device))
    assert decision(runner) == ("eager", "not-admitted-yet")
    runner(torch.empty(0, device=device))
    assert decision(runner) == ("eager", "empty-batch")


# invalidate, close


def test_invalidate_drops_recordings_and_says_why(device: torch.device) -> None:
    runner = graphed(double, admit_after=1)
    x = torch.ones(2, device=device)
    runner(x)
    runner.invalidate("new tokenizer")
    assert runner.report().graphs == ()
    assert runner.report().details["invalidated"] == "new tokenizer"
    runner(x)
    assert decision(runner) == ("recorded", "invalidated")
    assert runner.report().recaptures == 1


def test_a_closed_runner_answers_eagerly(device: torch.device) -> None:
    with graphed(double, admit_after=1) as runner:
        for _ in range(3):
            runner(torch.ones(2, device=device))
    assert torch.equal(runner(torch.ones(2, device=device)), torch.full((2,), 2.0, device=device))
    assert decision(runner) == ("eager", "closed")
    report = runner.report()
    assert (report.bytes, report.calls, report.replays) == (0, 4, 2)
    assert runner.warm(torch.ones(2, device=device)).reason is Reason.CLOSED
    runner.close()


# Copies, pickles, names.


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_a_copy_has_no_recordings_and_works(copied: Callable[[Any], Any]) -> None:
    runner = graphed(nn.Linear(2, 2), admit_after=1)
    x = torch.ones(1, 2)
    with torch.no_grad():
        runner(x)
        other = copied(runner)
        assert other.report().calls == 0
        assert torch.equal(other(x), runner(x))


def test_a_decorated_function_is_pickled_by_its_name() -> None:
    assert decorated.__name__ == "decorated"
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated


def test_a_method_can_be_decorated(device: torch.device) -> None:
    class Scaler(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(by, device=device), requires_grad=False)

        @graphed
        def scale(self, x: Tensor) -> Tensor:
            return x * self.weight

    two, three = Scaler(2.0), Scaler(3.0)
    x = torch.ones(2, device=device)
    for _ in range(3):
        assert two.scale(x).tolist() == [2.0, 2.0]
        assert three.scale(x).tolist() == [3.0, 3.0]
    assert decision(Scaler.scale) == ("replayed", None)


def test_a_partial_is_named_after_its_function() -> None:
    runner = graphed(functools.partial(double))
    runner(torch.ones(1))
    assert runner.report().name == "double"
    assert repr(runner).startswith("<graphed double: 0 recordings")


# Memory


def test_a_runner_that_is_gone_leaves_nothing_behind(device: torch.device) -> None:
    weight = torch.ones(8, device=device)
    gone = weakref.ref(weight)
    runner = graphed(lambda x, weight=weight: x * weight, admit_after=1)
    for _ in range(2):
        runner(torch.ones(8, device=device))
    del weight
    gc.collect()
    gc.disable()  # by reference counts alone: device memory must not wait for the collector
    try:
        assert gone() is not None
        del runner
        assert gone() is None
    finally:
        gc.enable()


def test_a_module_that_holds_its_own_runner_can_be_collected(device: torch.device) -> None:
    module = nn.Linear(2, 2, device=device)
    module.fast = graphed(module.forward, admit_after=1)  # type: ignore[assignment]
    with torch.no_grad():
        for _ in range(2):
            module.fast(torch.ones(1, 2, device=device))  # type: ignore[operator]
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


@pytest.mark.gpu
def test_closing_gives_the_memory_back() -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    runner = graphed(lambda x: (x @ x).relu() @ x, admit_after=1)
    runner(torch.ones(2048, 2048, device="cuda"))
    runner.close()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + (32 << 20)  # cuBLAS keeps its workspace
