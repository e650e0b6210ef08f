"""Which kernels a step ran, and for how long: what a shortfall from the floor is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from ostinato.bench.decode.rows import KernelTime


def kernels_of(answer: Callable[[], int]) -> tuple[KernelTime, ...]:
    """Profile one batch of answers; return its kernels, longest first. None on a CPU.

    Args:
        answer: Runs the batch, and returns how many steps that took.

    The prompt's kernels are among them, spread over the steps. Being watched costs each kernel a
    little, so the sum says less than the shares do.
    """
    if not torch.cuda.is_available():
        return ()
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        steps = max(answer(), 1)
        torch.cuda.synchronize()
    spent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for event in watched.events():
        if event.device_type == DeviceType.CUDA:
            spent[event.name] += event.device_time_total
            count[event.name] += 1
    return tuple(
        KernelTime(name[:80], count[name] / steps, us / steps) for name, us in spent.most_common(24)
    )
