"""Which kernels a step ran, and for how long: what a shortfall from the floor is made of.

Of a launch of several steps the profiler sees the first step alone: the others run inside a loop on
the device, and it records a loop's body once (H200, torch 2.11, 2026-11-30). So steps are counted
by the kernel that ends each of them, never by the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from ostinato.bench.decode.rows import KernelTime

_LAST = "_settle"
"""The kernel that runs once in every step; see `kernels/settling.py`."""
_MOST = 24
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Seen:
    """What ran while the profiler looked, by the name of the kernel.

    Attributes:
        count: How often.
        us: For how long altogether.
    """

    count: Counter[str]
    us: Counter[str]


def kernels_of(first: Callable[[], object], whole: Callable[[], object]) -> tuple[KernelTime, ...]:
    """Profile a batch of answers; return the kernels of a step, longest first. None on a CPU.

    Args:
        first: Runs the batch for its first tokens alone.
        whole: Runs the batch.

    A kernel that begins before the one ahead has ended is counted from its beginning, the waiting
    included, so the sum is more than a step takes.
    """
    if not torch.cuda.is_available():
        return ()
    return steps_between(_seen(first), _seen(whole))


def steps_between(first: Seen, whole: Seen) -> tuple[KernelTime, ...]:
    """Return what a step ran: `whole` without what the first tokens ran, for one of its steps.

    What fewer than half of the steps ran is a difference between two prefills, and left out.
    """
    steps = whole.count[_LAST] - first.count[_LAST]
    if steps <= 0:
        return ()
    ran = {
        name: (whole.count[name] - first.count[name], whole.us[name] - first.us[name])
        for name in whole.count
    }
    found = [
        KernelTime(name[:_LONGEST], count / steps, us / steps)
        for name, (count, us) in ran.items()
        if count >= steps / 2 and us > 0
    ]
    return tuple(sorted(found, key=lambda each: -each.us)[:_MOST])


def _seen(run: Callable[[], object]) -> Seen:
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        run()
        torch.cuda.synchronize()
    seen = Seen(Counter(), Counter())
    for event in watched.events():
        if event.device_type == DeviceType.CUDA:
            seen.us[event.name] += event.device_time_total
            seen.count[event.name] += 1
    return seen
