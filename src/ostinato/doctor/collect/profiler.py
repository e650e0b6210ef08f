"""A short window of torch.profiler: kernels, launches, copies and waits on a GPU.

Without stacks and without shapes, because both are known to stall a live program; the lines come
from the other collectors. It begins after the warm-up and ends after a few steps, on the thread
that makes the steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import torch

from ostinato import measure
from ostinato.doctor.activity import KernelUse, Profile
from ostinato.doctor.collect.gpu_use import has_gpu, is_capturing, uses_gpu
from ostinato.doctor.collect.notebook import Notebook

_AFTER_STEPS = 20
_STEPS = 10
_SHORT_US = 5.0
_TOP = 24
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchCooperativeKernel")
_GRAPHS = ("cudaGraphLaunch", "cuGraphLaunch")
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


@dataclass(slots=True)
class _Totals:
    kernels: int = 0
    short: int = 0
    short_us: float = 0.0
    copy_us: float = 0.0
    copy_bytes: int = 0
    launches: int = 0
    graph_launches: int = 0
    launch_us: float = 0.0
    waits: int = 0
    wait_us: float = 0.0


class Profiler:
    """Profiles a few steps."""

    name = "profile"

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._profile: Any = None
        self._began_ns = 0
        self._first = 0
        self._wall_us = 0.0
        self._steps = 0
        self._found: Profile | None = None
        self._thread = 0

    def start(self) -> None:
        """Wait for the steps."""
        if not has_gpu():
            raise OSError("there is no GPU to profile")

    def step(self, count: int) -> None:
        """Hear that a step ended: begin after the warm-up, end after a few more."""
        import threading

        if self._found is not None or not uses_gpu() or is_capturing():
            return
        if self._profile is None and count >= _AFTER_STEPS:
            self._thread, self._first = threading.get_ident(), count
            self._begin()
        elif (
            self._profile is not None
            and count >= self._first + _STEPS
            and threading.get_ident() == self._thread
        ):
            self._end(count)

    def _begin(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        self._profile = measure.profiler(*activities)
        self._profile.__enter__()
        torch.cuda.synchronize()
        self._began_ns = perf_counter_ns()

    def _end(self, count: int) -> None:
        torch.cuda.synchronize()
        self._wall_us = (perf_counter_ns() - self._began_ns) / 1e3
        self._steps = count - self._first
        profile, self._profile = self._profile, None
        profile.__exit__(None, None, None)
        events = profile.profiler.kineto_results.events()
        self._found = summarise(events, self._steps, self._wall_us)

    def stop(self) -> None:
        """End a window that is open."""
        if self._profile is not None:
            profile, self._profile = self._profile, None
            profile.__exit__(None, None, None)

    def fields(self) -> dict[str, Any]:
        """Return the window, where there were steps enough."""
        if self._found is None:
            self._notebook.problem(f"not profiled: fewer than {_AFTER_STEPS + _STEPS} steps")
            return {}
        return {"profile": self._found}


def summarise(events: Iterable[Any], steps: int, wall_us: float) -> Profile:
    """Return what the profiler's raw events come to."""
    totals = _Totals()
    names: dict[str, list[float]] = {}
    on_device: list[tuple[int, int]] = []
    listed = list(events)
    graphs = {e.correlation_id() for e in listed if e.name().startswith(_GRAPHS)}
    for event in listed:
        if event.device_type().name == "CUDA":
            _add_device(event, totals, names, on_device, event.correlation_id() in graphs)
        else:
            _add_host(event, totals)
    ranked = sorted(names.items(), key=lambda item: -item[1][1])[:_TOP]
    return Profile(
        steps=steps,
        wall_us=wall_us,
        busy_us=_union_us(on_device),
        kernels=totals.kernels,
        launches=totals.launches,
        graph_launches=totals.graph_launches,
        launch_us=totals.launch_us,
        waits=totals.waits,
        wait_us=totals.wait_us,
        short_kernels=totals.short,
        short_us=totals.short_us,
        copy_us=totals.copy_us,
        copy_bytes=totals.copy_bytes,
        top=tuple(KernelUse(n, int(v[0]), v[1], int(v[2])) for n, v in ranked),
    )


def _add_device(
    event: Any,
    totals: _Totals,
    names: dict[str, list[float]],
    on_device: list[tuple[int, int]],
    in_graph: bool,
) -> None:
    name, us = event.name(), event.duration_ns() / 1e3
    if name.startswith(("step ", "record ", "replay ")):  # our own ranges, seen on the device
        return
    on_device.append((event.start_ns(), event.start_ns() + event.duration_ns()))
    if name.startswith(("Memcpy HtoD", "Memcpy DtoH")):
        totals.copy_us += us
        totals.copy_bytes += max(0, int(event.nbytes()))
    elif not name.startswith(("Memcpy", "Memset")):
        totals.kernels += 1
        if us < _SHORT_US:
            totals.short += 1
            totals.short_us += us
        entry = names.setdefault(name, [0, 0.0, 0])
        entry[0] += 1
        entry[1] += us
        entry[2] += in_graph


def _add_host(event: Any, totals: _Totals) -> None:
    name = event.name()
    if name.startswith((*_LAUNCHES, *_GRAPHS)):
        totals.launches += 1
        totals.launch_us += event.duration_ns() / 1e3
        totals.graph_launches += name.startswith(_GRAPHS)
    elif name.startswith(_WAITS):
        totals.waits += 1
        totals.wait_us += event.duration_ns() / 1e3


def _union_us(spans: list[tuple[int, int]]) -> float:
    total = 0
    reached = 0
    for began, ended in sorted(spans):
        total += max(0, ended - max(began, reached))
        reached = max(reached, ended)
    return total / 1e3
