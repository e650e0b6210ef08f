"""How long things take: warm-up, medians with their spread, and fair comparisons.

A time is the wall time of one call, the device's work included. Runs that are compared take turns,
because a machine's clock and its neighbours drift by more than most differences worth finding. The
benchmarks and the reports come here; the call path never does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ostinato.units import format_us

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of many times, and how far they lie apart.

    Attributes:
        iqr_us: Interquartile range: the width of the middle half of the times.
        count: How many times were taken.
    """

    median_us: float
    iqr_us: float
    count: int

    @classmethod
    def of(cls, times_us: Sequence[float]) -> Spread:
        """Summarise `times_us`, which holds at least one time."""
        if len(times_us) == 1:
            return cls(median_us=times_us[0], iqr_us=0.0, count=1)
        low, middle, high = quantiles(times_us, n=4, method="inclusive")
        return cls(median_us=middle, iqr_us=high - low, count=len(times_us))

    def __str__(self) -> str:
        return f"{format_us(self.median_us)} (IQR {format_us(self.iqr_us)}, {self.count} runs)"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs that took turns.

    Attributes:
        speedup: How many times faster `contender` is: the median over rounds of base / contender,
            each pair timed back to back.
    """

    base: Spread
    contender: Spread
    speedup: float


def wait_for(device: torch.device | None) -> None:
    """Wait until `device` has done all its work; a CPU, or None, has nothing to wait for.

    Capture:
        Unsafe: it synchronises.
    """
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)


def time_once_us(run: Run, device: torch.device | None = None) -> float:
    """Return the wall time of one call in microseconds, the device's work included."""
    wait_for(device)
    began = perf_counter_ns()
    run()
    wait_for(device)
    return (perf_counter_ns() - began) / 1e3


def time_us(
    run: Run, *, device: torch.device | None = None, repeats: int = 20, warmups: int = 3
) -> Spread:
    """Return the spread of `repeats` calls after `warmups` that do not count."""
    for _ in range(warmups):
        run()
    return Spread.of([time_once_us(run, device) for _ in range(repeats)])


def host_us(
    run: Run,
    *,
    device: torch.device | None = None,
    repeats: int = 20,
    warmups: int = 3,
    calls: int = 1,
) -> Spread:
    """Return the spread of the time that the host spends in a call, the device's work left out.

    Args:
        calls: Calls per timing, with no wait between them; more than one hides the timer's own
            cost, but a device's launch queue that fills up makes the host wait after all.
    """
    for _ in range(warmups):
        run()
    times_us: list[float] = []
    for _ in range(repeats):
        wait_for(device)
        began = perf_counter_ns()
        for _ in range(calls):
            run()
        times_us.append((perf_counter_ns() - began) / 1e3 / calls)
    wait_for(device)
    return Spread.of(times_us)


def interleaved_us(
    runs: Mapping[str, Run],
    *,
    device: torch.device | None = None,
    rounds: int = 20,
    warmups: int = 3,
) -> dict[str, Spread]:
    """Time all `runs` in turns and return each one's spread by name.

    Every round calls each run once, in the opposite order of the round before, so that neither a
    drift of the clock nor what a neighbour leaves in the caches favours one of them.
    """
    times_us = _take_turns(runs, device=device, rounds=rounds, warmups=warmups)
    return {name: Spread.of(times) for name, times in times_us.items()}


def compare(
    base: Run,
    contender: Run,
    *,
    device: torch.device | None = None,
    rounds: int = 20,
    warmups: int = 3,
) -> Comparison:
    """Time two runs in turns and say how many times faster `contender` is than `base`."""
    times_us = _take_turns(
        {"base": base, "contender": contender}, device=device, rounds=rounds, warmups=warmups
    )
    pairs = zip(times_us["base"], times_us["contender"], strict=True)
    return Comparison(
        base=Spread.of(times_us["base"]),
        contender=Spread.of(times_us["contender"]),
        speedup=median(base_us / contender_us for base_us, contender_us in pairs),
    )


def profiler(*activities: ProfilerActivity, **options: Any) -> profile:
    """Return torch's profiler, for one cycle, which warns of nothing.

    torch 2.11 tells each one that it keeps no earlier cycles, and a program that makes errors of
    warnings would end of it. Its own remedy, `acc_events`, has every name decoded when the cycle
    ends, and now and then one is no text.
    """
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
    return profile(activities=activities, **options)


def _take_turns(
    runs: Mapping[str, Run], *, device: torch.device | None, rounds: int, warmups: int
) -> dict[str, list[float]]:
    for run in runs.values():
        for _ in range(warmups):
            run()
    times_us: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    for _ in range(rounds):
        for name, run in order:
            times_us[name].append(time_once_us(run, device))
        order.reverse()
    return times_us
