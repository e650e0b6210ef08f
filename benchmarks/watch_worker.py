"""A process that runs blocks of one program's steps when it is told to, watched or not.

`watch_overhead.py` starts two for each program. Orders come as lines of JSON on stdin, and answers
go as lines of JSON to stdout; the first one says how long a step takes. It ends when stdin does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from standing_clock import StandingClock
from watch_programs import bound_by, programs

from ostinato.device import default_device
from ostinato.doctor.keeper import Keeper
from ostinato.doctor.watching import Choices, Watch
from ostinato.measure import host_us, time_us, wait_for

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of steps, per step.

    Attributes:
        wall_us: By the clock; the mean.
        cpu_us: How long the process had a CPU, all of its threads together; the mean.
        step_us: The median of those that a watch passed over, of all where it did of none: on a GPU
            by the clock, on a CPU by the CPU time of the process.
        looks_us: What those that it looked at took beyond that; the median, spread over all.
        sampling_us, saving_us: Of the CPU time, the two threads of the watch.
    """

    wall_us: float
    cpu_us: float
    step_us: float
    looks_us: float = 0.0
    sampling_us: float = 0.0
    saving_us: float = 0.0


class Worker:
    """One program, and the watch that is on or is not."""

    def __init__(
        self, step: Callable[[], object], device: torch.device, folder: Path, clock: StandingClock
    ) -> None:
        self._step, self._device, self._folder, self._clock = step, device, folder, clock
        self._watch: Watch | None = None
        self._keeper: Keeper | None = None
        self._sampling: set[str] = set()
        self._saving: set[str] = set()
        self._began_s = 0.0
        self._time = process_time if device.type == "cpu" else perf_counter

    def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Do what an order says, and return what came of it."""
        if order["do"] == "block":
            with self._clock.going():
                return asdict(self.block(order["lead"], order["steps"])) | {
                    "age_s": self._clock.now() - self._began_s
                }
        began = perf_counter()
        if order["do"] == "watch":
            self._start(is_saved=order["how"] == "saved")
        else:
            self._stop()
        return {"us": (perf_counter() - began) * 1e6}

    def block(self, lead: int, steps: int) -> Block:
        """Time some steps, behind some that do not count."""
        for _ in range(lead):
            self._step()
        wait_for(self._device)
        groups = (self._sampling, self._saving)
        before = [sum(map(had_us, group)) for group in groups]
        times, time = [], self._time
        began, worked, since = perf_counter(), process_time(), time()
        for _ in range(steps):
            self._step()
            now = time()
            times.append(((now - since) * 1e6, self._looked()))
            since = now
        wait_for(self._device)
        passed, had = perf_counter() - began, process_time() - worked
        theirs = [sum(map(had_us, group)) for group in groups]
        per_step = [(b - a) / steps for a, b in zip(before, theirs, strict=True)]
        return Block(passed * 1e6 / steps, had * 1e6 / steps, *apart(times), *per_step)

    def _looked(self) -> bool:
        """Return whether the step that was just made is one that the watch looks at."""
        return self._watch is not None and self._watch._notebook.here.looks

    def _start(self, *, is_saved: bool) -> None:
        before = threads()
        self._began_s = self._clock.now()
        self._watch = Watch(choices=Choices()).start()
        self._sampling = threads() - before
        if is_saved:
            self._keeper = Keeper(self._watch, self._folder / "evidence.json")
            self._keeper.start()
        self._saving = threads() - before - self._sampling

    def _stop(self) -> None:
        assert self._watch is not None
        if self._keeper is not None:
            self._keeper.finish(ending=self._watch.so_far().subject.ending)
        self._watch.stop()
        self._watch = self._keeper = None
        self._sampling, self._saving = set(), set()


def apart(times: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """Return how long a step is that was passed over, and what looks take, a step.

    Args:
        times: Of each step, in us, and whether it was looked at.
    """
    passed_over = [us for us, looked in times if not looked]
    looked_at = [us for us, looked in times if looked]
    if not passed_over or not looked_at:
        return median(passed_over or looked_at), 0.0
    step_us = median(passed_over)
    return step_us, (median(looked_at) - step_us) * len(looked_at) / len(times)


def threads() -> set[str]:
    """Return the numbers of this process's threads, where the system tells them."""
    return set(os.listdir(_TASKS)) if _TASKS.exists() else set()


def had_us(thread: str) -> float:
    """Return how long a thread has had a CPU; 0 for one that has ended."""
    try:
        return int((_TASKS / thread / "schedstat").read_text().split()[0]) / 1e3
    except (OSError, ValueError, IndexError):
        return 0.0


def cpu_us(step: Callable[[], object], steps: int = 8) -> float:
    """Return how long a step has a CPU, all threads of the process together."""
    step()
    worked = process_time()
    for _ in range(steps):
        step()
    return (process_time() - worked) * 1e6 / steps


def say(answer: Mapping[str, Any]) -> None:
    """Give an answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Obey until nobody is left to give orders."""
    name, size = sys.argv[1:]
    device = torch.device("cpu") if size == "tiny" else default_device()
    if device.type == "cpu":
        torch.set_num_threads(1)  # several would wait for each other on a busy machine
    clock = StandingClock()
    with (
        torch.inference_mode(),
        clock.in_charge(),
        tempfile.TemporaryDirectory(prefix="watch-") as folder,
    ):
        step = programs(device, tiny=size == "tiny")[name]

        def whole() -> object:
            return step().tolist()  # type: ignore[attr-defined]

        # The fastest of several: on a busy machine one alone makes blocks far too short.
        step_us = min(
            time_us(whole, device=device, repeats=4).median_us
            if device.type == "cuda"
            else cpu_us(whole)
            for _ in range(4)
        )
        queued_us = min(host_us(step, device=device, repeats=4).median_us for _ in range(4))
        worker = Worker(whole, device, Path(folder), clock)
        bound = "host" if device.type == "cpu" else bound_by(queued_us, step_us)
        say({"step_us": step_us, "bound_by": bound})
        for line in sys.stdin:
            say(worker.obey(json.loads(line)))


if __name__ == "__main__":
    main()
