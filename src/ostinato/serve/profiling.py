"""Some steps of a running engine, recorded to a trace that chrome://tracing and Perfetto read."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from ostinato.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from ostinato.llm import Engine

_MOST_STEPS = 1000
_POLL_S = 0.002


class ProfilerBusy(ResourceError):
    """Another recording is being made."""


class _Busy:
    """There is one profiler in a process, so one recording at a time."""

    lock = Lock()


def profile(engine: Engine, steps: int, folder: str, timeout_s: float = 30.0) -> dict[str, Any]:
    """Record the next `steps` steps and write them to `folder`; waits for them.

    Returns:
        "file", and in "steps" how many there were: fewer if nothing more came in time.

    Raises:
        UsageError: OST6013, a number of steps that makes no sense.
        ProfilerBusy: OST6014, another recording is being made.
    """
    if not 1 <= steps <= _MOST_STEPS:
        raise UsageError(
            f"a trace records from 1 to {_MOST_STEPS} steps, got {steps}",
            code="OST6013",
            remedy=f"ask for at most {_MOST_STEPS} steps",
        )
    if not _Busy.lock.acquire(blocking=False):
        raise ProfilerBusy(
            "another trace is being recorded",
            code="OST6014",
            remedy="ask again when it is done",
        )
    try:
        return _record(engine, steps, Path(folder), timeout_s)
    finally:
        _Busy.lock.release()


def _record(engine: Engine, steps: int, folder: Path, timeout_s: float) -> dict[str, Any]:
    import torch

    from ostinato import measure

    on = [torch.profiler.ProfilerActivity.CPU]
    if engine.device.type == "cuda":
        on.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = measure.profiler(*on)
    began = engine.counts().steps
    # The profiler sees the thread that starts it.
    engine.between_steps(profiler.start).result()
    deadline = monotonic() + timeout_s
    while engine.counts().steps - began < steps and monotonic() < deadline:
        sleep(_POLL_S)
    engine.between_steps(profiler.stop).result()
    made = engine.counts().steps - began
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"steps-{began}-{began + made}.json"
    profiler.export_chrome_trace(str(file))
    return {"file": str(file), "steps": made}
