"""OST703 context-switch-jitter.

What it sees: the processes on the GPU, whether MPS serves them, and latency against switches.
How it decides: another process is busy there without MPS, latency is at least a third larger in the
windows with the most switches than in those with the fewest, and both move together (a correlation
of 0.5 or more over 8 windows or more). Without such windows it abstains.
"""

from __future__ import annotations

from statistics import mean, median

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.host_evidence import Gpu, GpuProcess, Switching
from ostinato.doctor.probe import Verdict, abstain, with_spread
from ostinato.doctor.probes.remote_numa_memory import used_gpu
from ostinato.units import format_us

RULE = RULES["OST703"]
_WINDOWS = 8
_LARGER = 1.33
_TOGETHER = 0.5
_BUSY = 0.05


def probe(evidence: Evidence) -> Verdict:
    """Find latency that comes from taking turns with another process."""
    host = evidence.host
    if host is None or not host.gpus:
        return None
    gpu = used_gpu(host)
    others = _busy_others(gpu)
    if not others or gpu.mps:
        return None
    switching = host.switching
    if switching is None or len(switching.latency_us) < _WINDOWS:
        return abstain(
            RULE,
            f"{_names(others)} {'has' if len(others) == 1 else 'have'} a context on GPU "
            f"{gpu.index} without MPS, and latency was not watched against it",
            "run `ostinato doctor host` while both are busy, or stop the other and compare",
        )
    calm, busy = _calm_and_busy(switching)
    if busy < _LARGER * calm or _correlation(switching) < _TOGETHER:
        return None
    fact = (
        f"{_names(others)} takes turns on GPU {gpu.index} without MPS: a step takes "
        f"{format_us(busy)} when it does, and {format_us(calm)} when it does not"
    )
    cost = Cost(busy - calm, (busy - calm) / busy)
    beyond = [us - calm for us in _latencies(switching)[1]]
    return RULE.finding(fact, None, with_spread(cost, beyond, "window"))


def _busy_others(gpu: Gpu) -> list[GpuProcess]:
    return [
        process
        for process in gpu.processes
        if not process.ours and (process.busy_share is None or process.busy_share >= _BUSY)
    ]


def _names(processes: list[GpuProcess]) -> str:
    first = f"{processes[0].name or 'a process'} ({processes[0].pid})"
    rest = len(processes) - 1
    return f"{first} and {rest} more" if rest else first


def _calm_and_busy(switching: Switching) -> tuple[float, float]:
    calm, busy = _latencies(switching)
    return median(calm), median(busy)


def _latencies(switching: Switching) -> tuple[list[float], list[float]]:
    """Return those of the third of the windows with the fewest switches, and with the most."""
    pairs = sorted(zip(switching.switches, switching.latency_us, strict=False))
    part = max(1, len(pairs) // 3)
    return [us for _, us in pairs[:part]], [us for _, us in pairs[-part:]]


def _correlation(switching: Switching) -> float:
    pairs = list(zip(switching.switches, switching.latency_us, strict=False))
    x_mean, y_mean = mean(x for x, _ in pairs), mean(y for _, y in pairs)
    together = sum((x - x_mean) * (y - y_mean) for x, y in pairs)
    x_var = sum((x - x_mean) ** 2 for x, _ in pairs)
    y_var = sum((y - y_mean) ** 2 for _, y in pairs)
    return together / (x_var * y_var) ** 0.5 if x_var > 0 and y_var > 0 else 0.0
