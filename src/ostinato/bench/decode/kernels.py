"""Which kernels a step ran, and for how long: what a shortfall from the floor is made of.

Of a launch of several steps the profiler sees the first step alone: the others run inside a loop on
the device, and it records a loop's body once (H200, torch 2.11, 2026-11-30). So steps are counted
by the kernel that ends each of them, never by the engine.

Prompts of a large batch are taken in over several plans, with steps of those who sit already in
between. Only what ran once all of them sat is a step of that batch, and is told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from ostinato import measure
from ostinato.bench.decode.parts import Part, parts_of
from ostinato.bench.decode.rows import KernelTime

_LAST = "_settle"
"""The kernel that runs once in every step; see `kernels/settling.py`."""
_PROMPTS = "_prefill"
"""The kernel that no step runs; see `kernels/paged_prefill.py`."""
_WHOLE = 0.9
"""Of the kernels of the longest step. The profiler loses some of a large model's (8B, 32 rows: half
of them); where a launch begins there are two or three more."""
_MOST = 24
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a kernel, or a copy, between two times in microseconds."""

    name: str
    began_us: float
    ended_us: float


@dataclass(frozen=True, slots=True)
class Watched:
    """What the kernels of a batch of answers tell.

    Attributes:
        first_busy_ms: How long some kernel ran while the first tokens were made: what is missing
            to the time to the first token passed before, between and behind them.
        first: The kernels of that, longest first; counts and times are of all of it.
        steps: The kernels of a step, longest first.
        parts: The same by what they are for, without what passed while they waited.
    """

    first_busy_ms: float | None = None
    first: tuple[KernelTime, ...] = ()
    steps: tuple[KernelTime, ...] = ()
    parts: tuple[Part, ...] = ()


def kernels_of(first: Callable[[], object], whole: Callable[[], object], *, layers: int) -> Watched:
    """Profile a batch of answers; nothing is run on a CPU.

    Args:
        first: Runs the batch for its first tokens alone.
        whole: Runs the batch.
        layers: Of the model.

    In `steps` a kernel that begins before the one ahead has ended is counted from its beginning,
    the waiting included, so the sum is more than a step takes.
    """
    if not torch.cuda.is_available():
        return Watched()
    began, ran = _seen(first), _seen(whole)
    parts = parts_of(whole_steps(ran), layers)
    return Watched(busy_us(began) / 1e3, _added(began, 1), steps_of(ran), parts)


def steps_while(run: Callable[[], object]) -> tuple[KernelTime, ...]:
    """Return what a step of an engine runs, longest first, seen while `run` waits; on a GPU."""
    return steps_of(_seen(run)) if torch.cuda.is_available() else ()


def steps_of(ran: Sequence[Ran]) -> tuple[KernelTime, ...]:
    """Return what a step ran, once no prompt was left; without a step, nothing.

    Steps of which the profiler lost a part do not count.
    """
    whole = whole_steps(ran)
    return _added([each for step in whole for each in step], len(whole))


def whole_steps(ran: Sequence[Ran]) -> list[list[Ran]]:
    """Return those steps, each with its kernels in the order in which they began."""
    in_order = sorted(ran, key=lambda each: each.began_us)
    last_prompt = max((at for at, each in enumerate(in_order) if each.name == _PROMPTS), default=-1)
    ends = [at for at, each in enumerate(in_order) if each.name == _LAST and at > last_prompt]
    # What the last prompts ran behind their attention ends with a `_LAST` of its own.
    steps = [in_order[a + 1 : b + 1] for a, b in pairwise(ends)]
    most = max(map(len, steps), default=0)
    return [step for step in steps if len(step) >= _WHOLE * most]


def busy_us(ran: Iterable[Ran]) -> float:
    """Return for how long at least one of them ran."""
    total = until = 0.0
    for each in sorted(ran, key=lambda each: each.began_us):
        total += max(each.ended_us - max(each.began_us, until), 0.0)
        until = max(until, each.ended_us)
    return total


def _added(ran: Iterable[Ran], steps: int) -> tuple[KernelTime, ...]:
    count: Counter[str] = Counter()
    us: defaultdict[str, float] = defaultdict(float)
    for each in ran:
        count[each.name] += 1
        us[each.name] += each.ended_us - each.began_us
    found = [KernelTime(name[:_LONGEST], count[name] / steps, us[name] / steps) for name in count]
    return tuple(sorted(found, key=lambda each: -each.us)[:_MOST])


def _seen(run: Callable[[], object]) -> list[Ran]:
    with measure.profiler(ProfilerActivity.CUDA) as watched:
        run()
        torch.cuda.synchronize()
    return [
        Ran(event.name, event.time_range.start, event.time_range.end)
        for event in watched.events()
        if event.device_type == DeviceType.CUDA
    ]
