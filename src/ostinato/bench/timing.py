"""Three times for each contender, taken in turns: of the host alone, of one call, of many calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter_ns
from typing import TypeVar

import torch
from torch import Tensor

from ostinato.bench.attempt import error_text
from ostinato.bench.contenders import Step
from ostinato.bench.options import Effort
from ostinato.measure import Spread, wait_for

Key = TypeVar("Key")

_WARMUPS = 5
_FEWEST_ROUNDS = 2


@dataclass(slots=True)
class Times:
    """What was taken so far, in microseconds per call.

    Attributes:
        host, alone, wall: As in `Row`.
        error: What a call raised; it is not called again.
    """

    host: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    error: str = ""

    def spread(self, name: str) -> Spread | None:
        """Return the spread of one of the three; None where nothing was taken."""
        taken = getattr(self, name)
        return Spread.of(taken) if taken and not self.error else None


def take_turns(
    calls: Mapping[Key, Step], inputs: Sequence[Tensor], device: torch.device, effort: Effort
) -> dict[Key, Times]:
    """Time all `calls` in turns, in the opposite order every second round.

    Every call gets another tensor than the one before, and drops its result before the next.
    """
    times = {name: Times() for name in calls}
    for name, call in calls.items():
        _guarded(times[name], _warm, call, inputs, device)
    order = list(calls)
    began = monotonic()
    for done in range(effort.rounds):
        if done >= _FEWEST_ROUNDS and monotonic() - began > effort.case_s:
            break
        for name in order:
            _guarded(times[name], _take, calls[name], inputs, device, effort, times[name])
        order.reverse()
    return times


def _guarded(times: Times, run: object, *args: object) -> None:
    if times.error:
        return
    try:
        run(*args)  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - it becomes a row of the result, in full view
        times.error = error_text(error)


def _warm(call: Step, inputs: Sequence[Tensor], device: torch.device) -> None:
    for number in range(_WARMUPS):
        call(inputs[number % len(inputs)])
    wait_for(device)


def _take(
    call: Step, inputs: Sequence[Tensor], device: torch.device, effort: Effort, times: Times
) -> None:
    for number in range(effort.drained_calls):
        given = inputs[number % len(inputs)]
        wait_for(device)
        began = perf_counter_ns()
        result = call(given)
        returned = perf_counter_ns()
        wait_for(device)
        ended = perf_counter_ns()
        del result
        times.host.append((returned - began) / 1e3)
        times.alone.append((ended - began) / 1e3)
    began = perf_counter_ns()
    for number in range(effort.joined_calls):
        call(inputs[number % len(inputs)])
    wait_for(device)
    times.wall.append((perf_counter_ns() - began) / 1e3 / effort.joined_calls)
