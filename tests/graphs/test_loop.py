"""Calls in series: so many, or until all flags are set, or until somebody rings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato import UsageError, graphed
from ostinato.errors import WrongTypeError
from ostinato.graphs import Bell, Outcome, Runner
from ostinato.graphs.backends.tape import TapeRecording
from ostinato.instruments import Instrument, Replayed


class Countdown:
    """Every run takes one from each number and flags those that have reached 0."""

    def __init__(self, device: torch.device, numbers: list[int]) -> None:
        self.left = torch.tensor(numbers, device=device)
        self.is_done = torch.zeros(len(numbers), 3, dtype=torch.long, device=device)[:, 1]
        self.runs = torch.zeros(1, dtype=torch.long, device=device)

    def __call__(self, by: int) -> None:
        self.runs.add_(1)
        self.left.sub_(by)
        self.is_done.copy_(self.left <= 0)


def made(count: Countdown, backend_name: str, **options: Any) -> Runner[[int], None]:
    return graphed(count, admit_after=1, warmups=1, backend=backend_name, **options)  # type: ignore[arg-type]


@pytest.fixture(params=["own", "shared"])
def memory(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_series_makes_as_many_calls_as_asked_for(
    device: torch.device, backend_name: str, memory: str
) -> None:
    count = Countdown(device, [100, 50])
    loop = made(count, backend_name, memory=memory).loop(device)
    for times, runs in ((1, 1), (5, 6), (2, 8), (2, 10), (0, 10)):
        assert loop.run(times, 1) == times
        assert count.runs.item() == runs
        assert loop.replays == (0 if runs == 1 else times)  # the first call is the recording
    assert count.left.tolist() == [90, 40]


def test_it_ends_before_the_call_at_which_all_flags_are_set(
    device: torch.device, backend_name: str
) -> None:
    count = Countdown(device, [3, 7, 5])
    loop = made(count, backend_name).loop(device, until=count.is_done)
    loop.warm(1)
    assert count.runs.item() == 0
    loop.run(4, 1)
    assert count.runs.item() == 4
    loop.run(20, 1)
    assert count.runs.item() == 7
    loop.run(20, 1)
    assert count.runs.item() == 7
    count.left.fill_(2)
    count.is_done.zero_()
    loop.run(20, 1)
    assert count.runs.item() == 9
    assert loop.why_queued is None


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32])
def test_flags_may_be_any_whole_numbers(
    device: torch.device, backend_name: str, dtype: torch.dtype
) -> None:
    count = Countdown(device, [4] * 300)
    count.left[299] = 6
    count.is_done = torch.zeros(300, dtype=dtype, device=device)
    loop = made(count, backend_name).loop(device, until=count.is_done)
    loop.warm(1)
    loop.run(50, 1)
    assert count.runs.item() == 6


def test_a_ring_ends_it_after_the_call_it_is_in_until_it_is_heeded(
    device: torch.device, backend_name: str
) -> None:
    count = Countdown(device, [100])
    bell = Bell(device)
    loop = made(count, backend_name).loop(device, until=count.is_done, bell=bell)
    loop.warm(1)
    ringer = threading.Thread(target=bell.ring)
    ringer.start()
    ringer.join()
    for runs in (1, 2):
        loop.run(9, 1)
        assert count.runs.item() == runs
    bell.heed()
    loop.run(9, 1)
    assert count.runs.item() == 11
    bell.ring()
    loop.run(9, 1)
    assert count.runs.item() == 12


def test_what_was_rung_between_a_look_and_a_launch_is_not_lost(
    device: torch.device, backend_name: str
) -> None:
    count = Countdown(device, [100])
    bell = Bell(device)
    loop = made(count, backend_name).loop(device, bell=bell)
    loop.warm(1)
    bell.ring()
    bell.heed()
    bell.ring()
    loop.run(9, 1)
    assert count.runs.item() == 1


def test_without_a_recording_the_calls_are_made_one_by_one(device: torch.device) -> None:
    count = Countdown(device, [5, 3])
    runner = made(count, "eager")
    loop = runner.loop(device, until=count.is_done)
    assert loop.run(2, 1) == 2
    assert count.runs.item() == 2
    assert runner.report().reasons == {"eager-backend": 2}


def test_the_call_that_records_counts_as_one(device: torch.device, backend_name: str) -> None:
    count = Countdown(device, [50])
    runner = made(count, backend_name)
    assert runner.loop(device).run(6, 2) == 6
    assert count.left.item() == 38
    assert (runner.report().calls, runner.report().replays) == (6, 5)


def test_every_call_of_a_series_is_counted_and_told(
    device: torch.device, backend_name: str, listen: Callable[[Instrument], None]
) -> None:
    class Tally(Instrument):
        replays = 0

        def replayed(self, event: Replayed) -> None:
            self.replays += 1

    tally = Tally()
    listen(tally)
    runner = made(Countdown(device, [50]), backend_name)
    loop = runner.loop(device)
    assert loop.warm(1).outcome is Outcome.RECORDED
    loop.run(4, 1)
    assert runner.report().replays == tally.replays == 4
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


@pytest.mark.parametrize("is_gone", [False, True], ids=["alive", "gone"])
def test_what_a_series_on_the_device_did_not_come_to_is_taken_back(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = TapeRecording.repeat

    def on_the_device(self: TapeRecording, times: int, ending: Any) -> int:
        queue(self, times, ending)
        return times  # the host cannot tell how many it were

    monkeypatch.setattr(TapeRecording, "repeat", on_the_device)
    device = torch.device("cpu")
    count = Countdown(device, [10])
    runner = made(count, "tape")
    loop = runner.loop(device, until=count.is_done)
    loop.warm(1)
    assert loop.run(8, 1) == loop.replays == 8  # as many as it made
    loop.take_back(0)
    assert loop.run(64, 1) == 64
    assert (count.runs.item(), runner.report().replays) == (10, 72)
    nodes = runner._store.graphs()[0].recording.nodes
    if is_gone:
        runner.invalidate()
    loop.take_back(62)
    report = runner.report()
    assert (report.calls, report.replays, loop.replays) == (10, 10, 2)
    assert runner._player.chronicle.lost_work == (10 * nodes if is_gone else 0)
    loop.take_back(5)  # no more than there were
    assert runner.report().replays == 8


def test_a_recording_that_goes_takes_its_loops_with_it(
    device: torch.device, backend_name: str
) -> None:
    count = Countdown(device, [50])
    runner = made(count, backend_name)
    loop = runner.loop(device)
    loop.run(3, 1)
    runner.invalidate()
    loop.run(3, 1)
    assert count.runs.item() == 6
    runner.close()
    loop.run(2, 1)
    assert count.runs.item() == 8
    assert runner.report().reasons["closed"] == 3  # a recording dropped, and two calls


@pytest.mark.gpu
def test_a_callable_that_draws_is_queued_call_by_call_and_says_why() -> None:
    device = torch.device("cuda:0")
    drawn = torch.zeros(4, 8, device=device)
    at = torch.zeros(1, dtype=torch.long, device=device)

    def draw() -> None:
        drawn.index_copy_(0, at, torch.rand(1, 8, device=device))
        at.add_(1)

    loop = graphed(draw, admit_after=1, warmups=1).loop(device)
    torch.manual_seed(5)
    assert loop.run(4) == 4
    assert "random generator" in str(loop.why_queued)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.stack([torch.rand(8, device=device) for _ in range(4)]))


def test_tensors_as_arguments_are_refused(device: torch.device, backend_name: str) -> None:
    def double(x: Tensor) -> None:
        x.mul_(2)

    loop = graphed(double, admit_after=1, backend=backend_name).loop(device)  # type: ignore[arg-type]
    x = torch.ones(3, device=device)
    with torch.no_grad(), pytest.raises(UsageError, match="tensors as arguments") as caught:
        loop.run(3, x)
    assert caught.value.code == "OST1016"


@pytest.mark.parametrize(
    ("given", "times", "words"),
    [
        ({"until": True}, 1, "cannot end by True"),
        ({"until": [0]}, 1, "cannot end by"),
        ({"bell": 3}, 1, "cannot be ended by 3"),
        ({}, None, "cannot run None times"),
        ({}, "3", "cannot run '3' times"),
        ({}, 1.5, "cannot run 1.5 times"),
    ],
)
def test_what_no_loop_can_take_is_named(given: dict[str, Any], times: Any, words: str) -> None:
    with pytest.raises(WrongTypeError, match=words) as caught:
        graphed(lambda: None).loop(torch.device("cpu"), **given).run(times)
    assert caught.value.code == "OST1016"


@pytest.mark.parametrize("until", [torch.zeros(2, 2, dtype=torch.bool), torch.zeros(3)])
def test_flags_of_another_form_are_refused(until: Tensor) -> None:
    with pytest.raises(UsageError, match="cannot end by a tensor of") as caught:
        graphed(lambda: None).loop(torch.device("cpu"), until=until)
    assert caught.value.code == "OST1016"
