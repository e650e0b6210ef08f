"""A call that cannot be replayed runs eagerly, is right, and says why: op, line and all."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.errors import CaptureError
from ostinato.graphs import Buckets, Outcome, Reason, graphed


def masked(x: Tensor) -> Tensor:
    return x[x > 0]


def item(x: Tensor) -> Tensor:
    return x * x.sum().item()


def branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x


def nonzero(x: Tensor) -> Tensor:
    return x.nonzero()


def to_list(x: Tensor) -> list[float]:
    return x.tolist()


def new_host_tensor(x: Tensor) -> Tensor:
    return x + torch.tensor([1.0, 2.0, 3.0], device=x.device)


CASES = [
    (masked, Reason.DATA_DEPENDENT_SHAPE, "x[x > 0]", "aten.index"),
    (nonzero, Reason.DATA_DEPENDENT_SHAPE, "x.nonzero()", "aten.nonzero"),
    (item, Reason.HOST_SYNC, "x.sum().item()", "_local_scalar_dense"),
    (branches, Reason.HOST_SYNC, "if x.sum() > 0:", "aten."),
]


@pytest.mark.parametrize(("fn", "reason", "line", "op"), CASES)
def test_what_stands_in_the_way_is_named_with_op_and_line(
    fn: Callable[[Tensor], Tensor],
    reason: Reason,
    line: str,
    op: str,
    device: torch.device,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = graphed(fn, admit_after=1)
    with caplog.at_level(logging.WARNING, logger="ostinato"):
        for values in ([1.0, -1.0, 3.0], [1.0, 2.0, 3.0], [-1.0, -1.0, -2.0]):
            x = torch.tensor(values, device=device)
            assert torch.equal(runner(x), fn(x))
            assert runner.last is not None
            assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, reason)
    assert line in runner.last.detail
    assert op in runner.last.detail
    assert "test_fallbacks.py:" in runner.last.detail
    records = [r for r in caplog.records if hasattr(r, "fallback_reason")]
    assert [r.fallback_reason for r in records] == [reason.value]  # said once
    assert records[0].graph_id is None
    assert records[0].created > 0
    assert line in records[0].getMessage()


@pytest.mark.parametrize(("fn", "reason", "line", "op"), CASES)
def test_asked_to_raise_it_says_the_same(
    fn: Callable[[Tensor], Tensor], reason: Reason, line: str, op: str, device: torch.device
) -> None:
    runner = graphed(fn, admit_after=1, on_unfit="raise")
    with pytest.raises(CaptureError) as caught:
        runner(torch.ones(3, device=device))
    assert (caught.value.code, caught.value.reason) == (reason.value, reason.value)
    assert line in str(caught.value)
    assert f"ostinato explain {reason}" in str(caught.value)


def test_a_tensor_read_into_a_list_is_a_host_sync(device: torch.device) -> None:
    runner = graphed(to_list, admit_after=1)
    for values in ([1.0], [2.0]):
        assert runner(torch.tensor(values, device=device)) == values
    assert runner.last is not None
    assert runner.last.reason is Reason.HOST_SYNC


def test_a_tensor_made_of_python_numbers_is_never_garbage(device: torch.device) -> None:
    runner = graphed(new_host_tensor, admit_after=1)
    x = torch.zeros(3, device=device)
    for _ in range(3):
        assert runner(x).tolist() == [1.0, 2.0, 3.0]
    assert runner.last is not None
    if device.type == "cuda":
        assert runner.last.reason is Reason.HOST_COPY


def test_arguments_on_several_devices_are_refused(device: torch.device) -> None:
    runner = graphed(lambda x, y: (x, y), admit_after=1)
    runner(torch.ones(1, device=device), torch.ones(1, device="meta"))
    assert runner.last is not None
    assert runner.last.reason is Reason.SEVERAL_DEVICES
    assert "meta" in runner.last.detail


@pytest.mark.gpu
def test_weights_elsewhere_than_the_arguments_are_refused_until_they_are_moved() -> None:
    module = nn.Linear(2, 2)
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, 2, device="cuda")
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            runner(x)
        module.cuda()
        for _ in range(3):  # a call that raised keeps the next one from being recorded
            assert torch.equal(runner(x), module(x))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_an_object_that_cannot_be_looked_into_is_refused(device: torch.device) -> None:
    runner = graphed(lambda x: x, admit_after=1)
    sparse = torch.eye(3, device=device).to_sparse()
    assert runner(sparse) is sparse
    assert runner.last is not None
    assert runner.last.reason is Reason.UNSUPPORTED_INPUT


def test_too_large_a_call_is_outside_the_buckets(device: torch.device) -> None:
    runner = graphed(lambda x: x * 2, buckets={"x": Buckets(dim=0, sizes=(2, 4))}, admit_after=1)
    assert runner(torch.ones(5, device=device)).shape == (5,)
    assert runner.last is not None
    assert runner.last.reason is Reason.OUTSIDE_BUCKETS
    assert "x has 5 along dim 0, the largest bucket is 4" in runner.last.detail


def test_padding_that_reaches_the_result_is_found_and_quarantined(device: torch.device) -> None:
    runner = graphed(
        lambda x: x / x.sum(), buckets={"x": Buckets(dim=0, sizes=(4,), fill=1)}, admit_after=1
    )
    x = torch.ones(3, device=device)
    for _ in range(3):
        torch.testing.assert_close(runner(x), x / 3)
    assert runner.last is not None
    assert runner.last.reason is Reason.PADDING_LEAKS


# Replays that fail.


class Lookup(nn.Module):
    """An index out of range is an error of the run itself, not of the recording."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.arange(4.0)[:, None], requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.table)


def test_a_replay_that_fails_is_quarantined_and_answered_as_eager_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = graphed(Lookup(), admit_after=1, backend="tape")
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 9])
    assert [runner(good).flatten().tolist() for _ in range(2)] == [[1.0, 2.0]] * 2
    with pytest.raises(IndexError):
        runner(bad)
    assert runner(good).flatten().tolist() == [1.0, 2.0]
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.REPLAY_ERROR)
    assert "IndexError" in runner.last.detail
    assert runner.report().graphs == ()
    said = [r for r in caplog.records if getattr(r, "fallback_reason", "") == "replay-error"]
    assert said
    assert said[0].graph_id == "Lookup#1"


def _break_replay(runner: Any, error: Exception) -> None:
    """Make the recording's next launch fail, as a device that is out of memory does."""

    class Broken:
        def __init__(self, recording: Any) -> None:
            self.recording = recording
            self.nodes = recording.nodes

        def enter(self) -> None:
            self.recording.enter()

        def replay(self) -> None:
            raise error

        def release(self) -> None:
            self.recording.release()

    for graph in runner._store.graphs():
        graph.recording = Broken(graph.recording)


def test_a_replay_that_fails_by_itself_is_answered_eagerly(device: torch.device) -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    x = torch.ones(2, device=device)
    runner(x)
    _break_replay(runner, RuntimeError("launch failed"))
    assert runner(x).tolist() == [2.0, 2.0]
    assert runner.last is not None
    assert runner.last.reason is Reason.REPLAY_ERROR
    report = runner.report()
    assert report.calls == report.replays + report.recordings + report.reasons["replay-error"] - 1


def test_state_that_a_failed_replay_moved_is_not_moved_twice(device: torch.device) -> None:
    count = torch.zeros((), device=device)

    def step(x: Tensor) -> Tensor:
        count.add_(1)
        return x + count

    runner = graphed(step, admit_after=1)
    x = torch.zeros(1, device=device)
    runner(x)
    _break_replay(runner, RuntimeError("launch failed"))
    with pytest.raises(RuntimeError, match="launch failed"):
        runner(x)
    assert count == 1
    assert runner(x).item() == 2.0


def test_memory_that_runs_out_in_a_replay_does_not_condemn_the_signature(
    device: torch.device,
) -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    x = torch.ones(2, device=device)
    runner(x)
    _break_replay(runner, torch.OutOfMemoryError("no memory"))
    for _ in range(8):
        assert runner(x).tolist() == [2.0, 2.0]
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_an_input_is_not_written_when_the_answer_cannot_be_copied(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    runner = graphed(step, admit_after=1)
    x = torch.zeros(2, device=device)
    runner(x)
    (graph,) = runner._store.graphs()

    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory for the copies")

    monkeypatch.setattr(graph.hand_out, "own", no_memory)
    assert runner(x).tolist() == [4.0, 4.0]
    assert x.tolist() == [2.0, 2.0]


# Recordings that fail.


def test_a_recording_that_fails_leaves_the_answer_and_the_next_try(device: torch.device) -> None:
    def broken_when_observed(x: Tensor) -> Tensor:
        if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
            raise ValueError("only without onlookers")
        return x * 2

    runner = graphed(broken_when_observed, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(20):
        assert runner(x).tolist() == [2.0, 2.0]
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.CAPTURE_ERROR)
    assert "only without onlookers" in runner.last.detail
    assert "test_fallbacks.py:" in runner.last.detail


def test_the_caller_s_own_error_comes_in_its_own_words(device: torch.device) -> None:
    def wrong(x: Tensor) -> Tensor:
        raise KeyError("my own")

    for admit_after in (1, 2):
        runner = graphed(wrong, admit_after=admit_after)
        for _ in range(3):
            with pytest.raises(KeyError, match="my own"):
                runner(torch.ones(1, device=device))
        assert runner.report().calls == 3


@pytest.mark.gpu
def test_a_capture_that_raises_gives_its_memory_back() -> None:
    import itertools

    def raise_at(run: int) -> None:
        if run == 6:
            raise ValueError("half way through the capture")

    tick = map(raise_at, itertools.count(1)).__next__

    def step(x: Tensor) -> Tensor:
        y = x @ x
        tick()
        return y @ x

    x = torch.ones(2048, 2048, device="cuda")
    step(x)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    runner = graphed(step, admit_after=1)
    runner(x)
    assert runner.last is not None
    assert runner.last.reason is Reason.CAPTURE_ERROR
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + (32 << 20)
    assert not torch.cuda.is_current_stream_capturing()
    for _ in range(6):
        runner(x)
    assert runner.last.outcome is Outcome.REPLAYED


@pytest.mark.gpu
def test_a_generator_on_another_device_is_refused() -> None:
    generator = torch.Generator("cpu")
    runner = graphed(lambda x: x + torch.rand(2, generator=generator).to(x.device), admit_after=1)
    runner(torch.ones(2, device="cuda"))
    assert runner.last is not None
    assert runner.last.reason in (Reason.HOST_COPY, Reason.UNREGISTERED_GENERATOR)
