"""One model, all contenders: built one after the other, timed in turns, compared with eager."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from ostinato.bench.attempt import Attempt, Deadline
from ostinato.bench.contenders import Bench, Ready
from ostinato.bench.models import Workload, build_workload
from ostinato.bench.options import GraphsOptions
from ostinato.bench.results import Contender, Difference, Row
from ostinato.bench.timing import Times, take_turns

Tell = Callable[[str], None]


def measure_forward(
    name: str, options: GraphsOptions, device: torch.device, deadline: Deadline, tell: Tell
) -> list[Row]:
    """Return one row for each contender, measured or with the reason why not."""
    refused = [Row(name, "", each, error=deadline.refusal) for each in options.contenders]
    if deadline.refusal:
        return refused
    tell(f"{name}: building")
    built = Attempt(lambda: build_workload(name, options, device))
    if built.value is None:
        return [replace(row, error=built.error) for row in refused]
    with torch.inference_mode(), forgotten_after():
        return _measure(built.value, options, device, deadline, tell)


def _measure(
    workload: Workload,
    options: GraphsOptions,
    device: torch.device,
    deadline: Deadline,
    tell: Tell,
) -> list[Row]:
    bench = Bench(workload, device)
    blank = {each: Row(workload.name, workload.setting, each) for each in options.contenders}
    ready: dict[Contender, Ready] = {}
    for each in options.contenders:
        error = bench.refusal(each) or deadline.refusal
        if not error:
            tell(f"{workload.name}: {each.label}")
            attempt = Attempt(lambda each=each: bench.build(each))  # type: ignore[misc]
            error = attempt.error
            if attempt.value is not None:
                ready[each] = attempt.value
        blank[each] = replace(blank[each], error=error)
    tell(f"{workload.name}: timing")
    calls = {each: one.call for each, one in ready.items()}
    times = take_turns(calls, workload.inputs, device, options.effort)
    for each, one in ready.items():
        blank[each] = _filled(blank[each], one, times[each], workload)
        one.close()
    return list(blank.values())


def _filled(row: Row, ready: Ready, times: Times, workload: Workload) -> Row:
    if times.error:
        return replace(row, error=times.error)
    compared = Attempt(lambda: _compare(ready.call, workload))
    difference = compared.value
    return replace(
        row,
        host=times.spread("host"),
        alone=times.spread("alone"),
        wall=times.spread("wall"),
        first_call_s=ready.first_call_s,
        recording_s=ready.recording_s,
        kept_bytes=ready.kept_bytes,
        reported_bytes=ready.reported_bytes,
        difference=difference,
        agrees=None if difference is None else difference.agrees(workload.tolerance),
        fallback=ready.fallback,
        note="; ".join(
            filter(None, (ready.note, compared.error and f"not compared: {compared.error}"))
        ),
    )


def _compare(call: Callable[[Tensor], Tensor], workload: Workload) -> Difference:
    """Return the largest difference from eager over the whole pool of inputs."""
    largest = scale = 0.0
    for given in workload.inputs:
        wanted = workload.module(given).float()
        got = call(given).float()
        gap = (got - wanted).abs().max().item()
        # max() would pass over a NaN.
        largest = max(largest, gap) if gap == gap else float("inf")
        scale = max(scale, wanted.abs().max().item())
    return Difference(largest, scale)


@contextmanager
def forgotten_after() -> Iterator[None]:
    """Let compiled code and graphs of one model go before the next one is built."""
    try:
        yield
    finally:
        torch.compiler.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
