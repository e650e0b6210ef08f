"""Making a recording takes several runs; the caller sees exactly one."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome, Reason, capture, graphed
from ostinato.graphs.buffers import StaticInputs
from ostinato.graphs.inline import runs_inline
from ostinato.graphs.state import TensorState


def state_of(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_batch_norm_in_training_counts_every_call_once(device: torch.device, no_grad: None) -> None:
    eager = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    module.load_state_dict(eager.state_dict())
    runner = graphed(module)
    for step in range(6):
        x = torch.randn(5, 3, device=device)
        torch.testing.assert_close(runner(x), eager(x))
        for name, value in eager.state_dict().items():
            torch.testing.assert_close(module.state_dict()[name], value, msg=f"{name} at {step}")
    assert module[1].num_batches_tracked == 6
    assert runner.report().replays == 4


def test_an_input_that_is_written_is_written_once_per_call(device: torch.device) -> None:
    def add_one(x: Tensor) -> Tensor:
        return x.add_(1)

    runner = graphed(add_one)
    x = torch.zeros(3, device=device)
    for step in range(5):
        assert runner(x) is x
        assert x.tolist() == [step + 1.0] * 3


@pytest.mark.parametrize("admit_after", [1, 2])
def test_the_random_state_is_that_of_eager_after_every_call(
    admit_after: int, device: torch.device
) -> None:
    def draw(x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    runner = graphed(draw, admit_after=admit_after)
    x = torch.ones(64, device=device)
    torch.manual_seed(7)
    expected = [draw(x) for _ in range(5)]
    after = state_of(device)
    torch.manual_seed(7)
    found = [runner(x) for _ in range(5)]
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(state_of(device), after)
    assert len({tuple(each.tolist()) for each in found}) == 5  # fresh masks


def test_a_private_generator_moves_on_by_one_run_per_call(device: torch.device) -> None:
    def draw(generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        def step(x: Tensor) -> Tensor:
            return x + torch.rand(x.shape, generator=generator, device=x.device)

        return step

    x = torch.zeros(8, device=device)
    theirs = draw(torch.Generator(device).manual_seed(3))
    mine = graphed(draw(torch.Generator(device).manual_seed(3)))
    for step in range(5):
        assert torch.equal(mine(x), theirs(x)), step
    assert mine.last is not None
    assert mine.last.outcome is Outcome.REPLAYED


def test_replays_are_reproducible_under_a_seed(device: torch.device) -> None:
    runner = graphed(lambda x: nn.functional.dropout(x, 0.5), admit_after=1)
    x = torch.ones(256, device=device)
    runner(x)
    found = []
    for _ in range(2):
        torch.manual_seed(11)
        found.append([runner(x) for _ in range(3)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("admit_after", [1, 2, 4, 5])
def test_eager_calls_count_as_warm_ups(admit_after: int, device: torch.device) -> None:
    answered_before = admit_after - 1
    warmups = max(0, 3 - answered_before)
    # And one run that is observed, one that answers, one that is recorded.
    assert _runs_until_recorded(admit_after, device) == answered_before + 1 + 1 + warmups + 1


def hidden(callback: Callable[[int], None]) -> Callable[[], None]:
    """Return a function that calls `callback(1)`, then `callback(2)`, …

    A recording counts what a run changes in Python as a side effect; this is out of its sight.
    """
    return map(callback, itertools.count(1)).__next__


def _runs_until_recorded(admit_after: int, device: torch.device) -> int:
    runs: list[int] = []
    tick = hidden(runs.append)

    def step(x: Tensor) -> Tensor:
        tick()
        return x * 2

    runner = graphed(step, admit_after=admit_after)
    while runner.last is None or runner.last.outcome is not Outcome.RECORDED:
        runner(torch.ones(2, device=device))
    return len(runs)


def test_python_s_and_numpy_s_random_state_are_untouched(device: torch.device) -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    python, legacy = random.getstate(), np.random.get_state()
    runner(torch.ones(2, device=device))
    assert random.getstate() == python
    assert (np.random.get_state()[1] == legacy[1]).all()


# A function that raises half way.


@pytest.mark.parametrize("error", [ValueError("half way"), KeyboardInterrupt()], ids=["own", "^C"])
@pytest.mark.parametrize(
    "at", [1, 2, 3, 4, 6], ids=["first call", "observed", "answering", "warm-up", "recorded"]
)
def test_a_run_that_breaks_off_leaves_no_half_of_it(
    at: int, error: BaseException, device: torch.device
) -> None:
    def break_off(run: int) -> None:
        if run == at:
            raise error

    tick = hidden(break_off)

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), device=device))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            tick()
            return x + self.count

    module = Counting()
    runner = graphed(module, warmups=3)
    x = torch.zeros(2, device=device)
    count = failed = 0
    for _ in range(6):
        try:
            y = runner(x)
            count += 1
            assert y.tolist() == [count, count]
        except (ValueError, KeyboardInterrupt):
            failed += 1
            # As in eager the run that was to answer counts, half as it is; no other one does.
            count += at != 2
        assert module.count == count
    # Only the runs that answer raise; an interrupt always does.
    assert failed == (at in (1, 3) or isinstance(error, KeyboardInterrupt))
    torch.zeros(1, device=device).add_(1)  # the stream is not capturing
    for _ in range(20):
        runner(x)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("no room"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=["device", "python", "host"],
)
@pytest.mark.parametrize("at", [1, 2, 3], ids=["inputs", "before", "after"])
def test_where_copies_find_no_room_the_call_is_answered_and_counts_once(
    at: int, error: Exception, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    room = TensorState

    def short_of_memory(tensors: Sequence[Tensor]) -> TensorState:
        nonlocal asked
        asked += 1
        if asked == at:
            raise error
        return room(tensors)

    monkeypatch.setattr(capture, "TensorState", short_of_memory)
    monkeypatch.setattr(StaticInputs, "save", lambda given: short_of_memory(given.tensors))
    count = torch.zeros((), device=device)

    def step(x: Tensor) -> Tensor:
        count.add_(1)
        return x + count

    runner = graphed(step, admit_after=1)
    x = torch.zeros(2, device=device)
    for called in range(1, 12):
        assert runner(x).tolist() == [called, called]
        assert count == called
        assert runner.last is not None
        if called == 1:
            assert runner.last.reason is Reason.CAPTURE_ERROR
            assert type(error).__name__ in runner.last.detail
    assert runner.last.outcome is Outcome.REPLAYED


class Leaves(BaseException):
    """As SystemExit: no error, and goes through everything."""


def test_an_exit_that_only_a_recording_comes_to_does_not_come_at_every_later_call(
    device: torch.device,
) -> None:
    def step(x: Tensor) -> Tensor:
        if runs_inline():
            raise Leaves
        return x * 2

    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    answered = []
    for _ in range(12):
        try:
            answered.append(torch.equal(runner(x), x * 2))
        except Leaves:
            answered.append(False)
    # It is tried again ever more rarely, and each call between is answered.
    assert answered == [number not in (0, 2, 6) for number in range(12)]
    assert runner.last is not None
    assert runner.last.reason is Reason.CAPTURE_ERROR
    assert "Leaves" in runner.last.detail
    assert runner.report().calls == 12


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", range(1, 7))
def test_an_interrupt_is_told_as_one_and_is_no_failure(
    at: int, error: type[BaseException], device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(run: int) -> None:
        if run == at:
            raise error

    tick = hidden(stop)

    def step(x: Tensor) -> Tensor:
        tick()
        return x * 2

    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    with pytest.raises(error):
        runner(x)
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.NOT_ADMITTED_YET)
    assert runner.last.detail == f"{error.__name__} came while it was being recorded"
    report = runner.report().to_dict()
    assert report["reasons"] == {"not-admitted-yet": 1}
    assert (report["calls"], report["recordings"]) == (1, 0)
    assert not caplog.records
    for _ in range(2 if error is KeyboardInterrupt else 4):
        assert runner(x).tolist() == [2, 2]
    assert runner.last.outcome is Outcome.REPLAYED


def test_warming_that_is_interrupted_tells_so_and_counts_no_call(device: torch.device) -> None:
    is_stopping = [True]

    def step(x: Tensor) -> Tensor:
        if is_stopping[0]:
            raise KeyboardInterrupt
        return x * 2

    runner = graphed(step)
    with pytest.raises(KeyboardInterrupt):
        runner.warm(torch.ones(2, device=device))
    assert runner.last is not None
    assert runner.last.reason is Reason.NOT_ADMITTED_YET
    assert runner.report().calls == 0
    is_stopping[0] = False
    assert runner.warm(torch.ones(2, device=device)).outcome is Outcome.RECORDED


# Autocast and grad mode.


def test_autocast_is_part_of_the_key(device: torch.device) -> None:
    module = nn.Linear(4, 4, device=device).eval()
    runner = graphed(module, admit_after=1)
    x = torch.randn(2, 4, device=device)
    with torch.no_grad():
        for _ in range(2):
            assert runner(x).dtype is torch.float32
            with torch.autocast(device.type, dtype=torch.bfloat16):
                assert runner(x).dtype is torch.bfloat16
                torch.testing.assert_close(runner(x), module(x))
    assert len(runner.report().graphs) == 2


def test_a_weight_changed_between_two_autocast_calls_is_seen(device: torch.device) -> None:
    module = nn.Linear(4, 4, bias=False, device=device)  # requires grad: what autocast caches
    runner = graphed(module, admit_after=1)
    x = torch.ones(2, 4, device=device)
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
        runner(x)
        runner(x)
    with torch.no_grad():
        module.weight.fill_(1.0)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            assert runner(x).tolist() == [[4.0] * 4] * 2
            assert runner.last is not None
            assert runner.last.outcome is Outcome.REPLAYED
    assert torch.is_autocast_cache_enabled()


def test_a_result_with_gradients_runs_eagerly_with_the_reason(device: torch.device) -> None:
    module = nn.Linear(3, 3, device=device)
    runner = graphed(module, admit_after=1)
    x = torch.ones(2, 3, device=device)
    y = runner(x)
    assert runner.last is not None
    assert runner.last.reason is Reason.REQUIRES_GRAD
    y.sum().backward()
    assert module.weight.grad is not None
    with torch.no_grad():
        runner(x)
        runner(x)
    assert runner.last.outcome is Outcome.REPLAYED


def test_a_function_that_needs_no_gradients_inside_is_recorded(device: torch.device) -> None:
    module = nn.Linear(3, 3, device=device)

    @torch.no_grad()
    def infer(x: Tensor) -> Tensor:
        return module(x)

    runner = graphed(infer, admit_after=1)
    x = torch.ones(2, 3, device=device, requires_grad=True)
    for _ in range(3):
        assert torch.equal(runner(x), infer(x))
        assert not runner(x).requires_grad
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_a_parameter_that_begins_to_require_gradients_is_noticed(device: torch.device) -> None:
    module = nn.Linear(3, 3, device=device).requires_grad_(False)
    runner = graphed(module, admit_after=1)
    x = torch.ones(2, 3, device=device)
    for _ in range(2):
        runner(x)
    module.weight.requires_grad_(True)
    y = runner(x)
    assert y.requires_grad
    y.sum().backward()
    assert module.weight.grad is not None


def test_the_autocast_cache_is_off_in_every_run_that_is_recorded(device: torch.device) -> None:
    caching: list[bool] = []
    look = hidden(lambda _: caching.append(torch.is_autocast_cache_enabled()))

    def step(x: Tensor) -> Tensor:
        look()
        return x * 2

    graphed(step, admit_after=1, warmups=0)(torch.ones(2, device=device))
    assert caching == [False, True, False]  # observed, answering, recorded
