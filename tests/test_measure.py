"""Measure: medians with their spread, and runs that take turns."""

import pytest
import torch

from ostinato import measure
from ostinato.measure import Spread


def test_a_spread_is_the_median_and_the_width_of_the_middle_half() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(median_us=3.0, iqr_us=2.0, count=5)


def test_one_slow_call_does_not_move_the_median() -> None:
    assert Spread.of([1.0, 1.0, 1.0, 1.0, 9000.0]).median_us == 1.0


def test_a_single_time_has_no_spread() -> None:
    assert Spread.of([7.0]) == Spread(median_us=7.0, iqr_us=0.0, count=1)


def test_a_spread_reads_as_a_time_with_its_range_and_count() -> None:
    assert str(Spread(median_us=1900.0, iqr_us=110.0, count=50)) == "1.90 ms (IQR 110 us, 50 runs)"


def test_warm_ups_run_and_do_not_count() -> None:
    calls: list[int] = []
    spread = measure.time_us(lambda: calls.append(1), repeats=4, warmups=2)
    assert (len(calls), spread.count) == (6, 4)


class Clock:
    """A clock that moves only when a run says so."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def work_for_us(self, duration_us: int) -> None:
        self.ns += duration_us * 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measure, "perf_counter_ns", clock)
    return clock


def test_a_call_is_timed_in_microseconds(clock: Clock) -> None:
    assert measure.time_once_us(lambda: clock.work_for_us(250)) == 250.0


def test_the_host_time_of_many_calls_is_that_of_one(clock: Clock) -> None:
    spread = measure.host_us(lambda: clock.work_for_us(250), repeats=2, warmups=0, calls=3)
    assert spread == Spread(median_us=250.0, iqr_us=0.0, count=2)


def test_runs_take_turns_in_an_order_that_turns_round() -> None:
    order: list[str] = []
    runs = {name: lambda name=name: order.append(name) for name in ("a", "b", "c")}
    spreads = measure.interleaved_us(runs, rounds=2, warmups=1)
    assert order == ["a", "b", "c", "a", "b", "c", "c", "b", "a"]
    assert {name: spread.count for name, spread in spreads.items()} == {"a": 2, "b": 2, "c": 2}


def test_a_comparison_says_how_many_times_faster_the_contender_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The machine slows down by ten each round; the ratios of the pairs hardly move.
    pairs = [(30.0, 10.0), (300.0, 100.0), (4000.0, 1000.0)]
    times: list[float] = []
    for index, (base, contender) in enumerate(pairs):
        times += [base, contender] if index % 2 == 0 else [contender, base]
    monkeypatch.setattr(measure, "time_once_us", lambda run, device: times.pop(0))
    comparison = measure.compare(lambda: None, lambda: None, rounds=3)
    assert comparison.speedup == 3.0
    assert (comparison.base.median_us, comparison.contender.median_us) == (300.0, 100.0)


@pytest.mark.gpu
def test_the_time_of_a_gpu_call_includes_the_work_of_the_gpu() -> None:
    import torch

    device = torch.device("cuda:0")
    x = torch.ones(4096, 4096, device=device)
    whole = measure.time_us(lambda: [x @ x for _ in range(20)], device=device, repeats=5)
    host = measure.host_us(lambda: [x @ x for _ in range(20)], device=device, repeats=5)
    assert whole.median_us > 2 * host.median_us


def test_a_profiler_starts_where_warnings_are_errors() -> None:
    for _ in range(2):
        with measure.profiler(torch.profiler.ProfilerActivity.CPU) as profile:
            torch.ones(3).sum()
        assert "aten::sum" in {event.key for event in profile.key_averages()}
