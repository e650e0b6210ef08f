"""Every way to call a model, made ready: what a user would write, and what we offer.

All run under inference mode. A contender's first call counts as its cost: what it compiles and
records happens there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ostinato.bench.models import Workload
from ostinato.bench.results import Contender
from ostinato.graphs import Outcome, Runner, graphed
from ostinato.measure import wait_for

Step = Callable[[Tensor], Tensor]

_NEEDS_CUDA = frozenset({Contender.CALLABLES, Contender.RAW})
_WARMUPS = 3


@dataclass(frozen=True, slots=True)
class Ready:
    """A contender that has been called.

    Attributes:
        call: The result may be overwritten by the next call where the contender works that way.
    """

    call: Step
    first_call_s: float
    recording_s: float | None
    kept_bytes: int | None
    runner: Runner[..., Any] | None = None
    note: str = ""

    @property
    def reported_bytes(self) -> int | None:
        """What the runner says its recordings keep."""
        return None if self.runner is None else self.runner.report().bytes

    @property
    def fallback(self) -> str:
        """Why calls are not replays, where a runner says so."""
        decision = None if self.runner is None else self.runner.last
        if decision is None or decision.outcome is not Outcome.EAGER:
            return ""
        return f"runs eagerly: {decision.reason} {decision.detail}".strip()

    def close(self) -> None:
        """Give back what a runner holds."""
        if self.runner is not None:
            self.runner.close()


class Bench:
    """The contenders of one workload; one compiled module is shared by those that use it."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        self.workload = workload
        self._device = device
        self._compiled: Any = None

    def refusal(self, contender: Contender) -> str:
        """Say why `contender` cannot run here; empty where it can."""
        if contender in _NEEDS_CUDA and self._device.type != "cuda":
            return "needs a CUDA device"
        return ""

    def build(self, contender: Contender) -> Ready:
        """Make `contender` and call it once.

        Raises:
            Exception: Whatever the contender itself raises.
        """
        before, skips = self._reserved_bytes(), _cudagraph_skips()
        wait_for(self._device)
        began = perf_counter()
        made = self._make(contender)
        made.call(self.workload.inputs[0])
        wait_for(self._device)
        first_call_s = perf_counter() - began
        for given in self.workload.inputs[1:_WARMUPS]:  # a second and a third call may still record
            made.call(given)
        after = self._reserved_bytes()
        kept = None if before is None or after is None else max(0, after - before)
        skips = _cudagraph_skips() - skips if contender is Contender.REDUCED else 0
        note = f"torch.compile made no graph in {skips} places" if skips else ""
        return Ready(made.call, first_call_s, made.recording_s(), kept, made.runner, note)

    def _make(self, contender: Contender) -> _Made:
        module, sample = self.workload.module, self.workload.inputs[0]
        match contender:
            case Contender.EAGER:
                return _Made(module)
            case Contender.COMPILED:
                return _Made(self._compile_once())
            case Contender.REDUCED:
                return _Made(torch.compile(module, mode="reduce-overhead"))
            case Contender.CALLABLES:
                return _callables(module, sample)
            case Contender.RAW:
                return _hand_written(module, sample)
            case Contender.OWNED:
                return _graphed(module)
            case Contender.LEASED:
                return _leased(module)
            case Contender.INSIDE:
                return _graphed(self._compile_once())

    def _compile_once(self) -> Any:
        if self._compiled is None:
            self._compiled = torch.compile(self.workload.module)
        return self._compiled

    def _reserved_bytes(self) -> int | None:
        if self._device.type != "cuda":
            return None
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(self._device)


@dataclass(frozen=True, slots=True)
class _Made:
    call: Any
    runner: Runner[..., Any] | None = None
    seconds: float | None = None

    def recording_s(self) -> float | None:
        if self.runner is None:
            return self.seconds
        seconds: list[float] = [graph.build_seconds for graph in self.runner.report().graphs]
        return sum(seconds) if seconds else None


def _cudagraph_skips() -> int:
    """Return how often torch.compile has given up on a graph so far; it says so nowhere else."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def _callables(module: Step, sample: Tensor) -> _Made:
    began = perf_counter()

    def step(given: Tensor) -> Tensor:  # a module would have its own forward replaced
        return module(given)

    call = torch.cuda.make_graphed_callables(step, (sample.clone(),))
    return _Made(call, seconds=perf_counter() - began)


def _hand_written(module: Step, sample: Tensor) -> _Made:
    """Return what the guide of torch.cuda.graph shows, with an output that is the caller's own."""
    began = perf_counter()
    static = sample.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARMUPS):
            module(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module(static)

    def call(given: Tensor) -> Tensor:
        static.copy_(given)
        graph.replay()
        return result.clone()

    return _Made(call, seconds=perf_counter() - began)


def _graphed(module: Step) -> _Made:
    runner = graphed(module, admit_after=1)
    return _Made(runner, runner)


def _leased(module: Step) -> _Made:
    runner: Runner[..., Any] = graphed(module, admit_after=1, outputs="leased")

    def call(given: Tensor) -> Tensor:
        tensor: Tensor = runner(given).get()
        return tensor

    return _Made(call, runner)
