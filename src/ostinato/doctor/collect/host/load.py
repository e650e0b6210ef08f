"""Look at a GPU while it works: link and clocks under load, and latency beside other processes.

A link at rest reports generation 1 and a resting clock proves nothing, so copies and fills run
while NVML is asked. It takes about two seconds a GPU, a quarter of a gigabyte on either side, and
disturbs whoever else uses the GPU for that long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter, time
from typing import Any, Protocol

from ostinato.doctor.collect.host.look import Look
from ostinato.doctor.collect.host.nvml import Nvml, busy_shares, clocks_of, link_of
from ostinato.doctor.collect.host.switches import involuntary_switches
from ostinato.doctor.host_evidence import Clocks, Gpu, Link, Switching

BUFFER_BYTES = 256 << 20
_COPIES = 8
_SECONDS = 1.0
_WINDOWS = 16
_SMALL_BYTES = 1 << 16


class Worker(Protocol):
    """What puts load on a GPU; see `driver_api.Worker`."""

    def upload_gbs(self) -> float: ...
    def download_gbs(self) -> float: ...
    def fill_us(self, nbytes: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """A GPU seen while it worked, and the latency of small work on it by windows."""

    gpu: Gpu
    switching: Switching | None


def look_under_load(
    look: Look, nvml: Nvml, handle: Any, gpu: Gpu, worker: Worker, *, seconds: float = _SECONDS
) -> Loaded:
    """Copy, fill, and ask NVML meanwhile.

    Args:
        seconds: How long to fill, and how long to watch latency.
    """
    link = _link_under_load(look, nvml, handle, gpu, worker)
    clocks = _clocks_under_load(nvml, handle, worker, seconds)
    seen = replace(gpu, link=link, clocks=clocks)
    others = [process for process in gpu.processes if not process.ours]
    return Loaded(seen, _switching(look, nvml, handle, worker, seconds) if others else None)


def _link_under_load(look: Look, nvml: Nvml, handle: Any, gpu: Gpu, worker: Worker) -> Link | None:
    worker.upload_gbs()  # the first one wakes the link
    up: list[float] = []
    down: list[float] = []
    states: list[Link | None] = []
    before = nvml.ask("nvmlDeviceGetPcieReplayCounter", handle)
    for _ in range(_COPIES):
        up.append(worker.upload_gbs())
        down.append(worker.download_gbs())
        states.append(link_of(look, nvml, handle, gpu.bus_id))
    after = nvml.ask("nvmlDeviceGetPcieReplayCounter", handle)
    known = [state for state in states if state is not None]
    link = max(known, key=lambda each: (each.generation or 0, each.width or 0), default=Link())
    return replace(
        link,
        under_load=True,
        h2d_gbs=round(median(up), 2),
        d2h_gbs=round(median(down), 2),
        replays=after,
        replays_under_load=None if None in (before, after) else after - before,
    )


def _clocks_under_load(nvml: Nvml, handle: Any, worker: Worker, seconds: float) -> Clocks:
    """Fill memory for a while; the clocks are the median, the reasons those that held."""
    samples: list[Clocks] = []
    held: Counter[str] = Counter()
    began = last = perf_counter()
    while perf_counter() - began < seconds or len(samples) < 3:
        for _ in range(8):
            worker.fill_us(BUFFER_BYTES)
        samples.append(clocks_of(nvml, handle))
        now = perf_counter()
        held.update(dict.fromkeys(samples[-1].reasons, int((now - last) * 1e6)))
        last = now
    middle = sorted(samples, key=lambda each: each.sm_mhz or 0)[len(samples) // 2]
    return replace(
        middle,
        reasons=tuple(held),
        throttled_us=tuple(float(us) for us in held.values()),
        watched_us=(last - began) * 1e6,
        under_load=True,
    )


def _switching(look: Look, nvml: Nvml, handle: Any, worker: Worker, seconds: float) -> Switching:
    """Time small fills in windows, beside how busy the other processes were in each."""
    latency: list[float] = []
    busy: list[float] = []
    switches: list[int] = []
    mine = _counter(look)
    for _ in range(_WINDOWS):
        since_us, before = int(time() * 1e6), mine()
        times: list[float] = []
        began = perf_counter()
        while perf_counter() - began < seconds / _WINDOWS or len(times) < 3:
            times.append(worker.fill_us(_SMALL_BYTES))
        latency.append(round(median(times), 2))
        busy.append(round(100 * sum(busy_shares(nvml, handle, since_us).values()), 1))
        switches.append(mine() - before)
    return Switching(tuple(latency), tuple(busy), tuple(switches))


def _counter(look: Look) -> Callable[[], int]:
    return lambda: involuntary_switches(look, "self") or 0
