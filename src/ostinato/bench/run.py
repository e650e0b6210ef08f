"""The whole benchmark: every part in turn, and the result so far after each.

What is quick comes before what compiles for minutes, and the traffic, which takes minutes each way,
comes last, so that a budget that runs out leaves the more rows measured.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch

from ostinato.bench.attempt import Deadline
from ostinato.bench.claims import claims_of
from ostinato.bench.forwards import Tell, measure_forward
from ostinato.bench.generation import measure_generation
from ostinato.bench.head import describe_run
from ostinato.bench.options import FORWARDS, GENERATIONS, GraphsOptions
from ostinato.bench.results import GraphsResult
from ostinato.bench.traffic import measure_traffic
from ostinato.errors import UsageError

Save = Callable[[GraphsResult], None]


def run_graphs(options: GraphsOptions, *, tell: Tell, save: Save) -> GraphsResult:
    """Measure what `options` ask for.

    Args:
        tell: Is told what begins, for people who wait.
        save: Gets the result so far after every part, so that a run that is cut short is not lost.
    """
    device = device_named(options.device)
    deadline = Deadline(options.budget_s)
    head = describe_run(device) | {"options": options.to_dict()}
    result = GraphsResult(head, is_tiny=options.is_tiny)
    with _without_advice():
        for name in (name for name in GENERATIONS if name in options.models):
            made = measure_generation(name, options, device, deadline, tell)
            result = replace(result, generations=(*result.generations, *made))
            save(result)
        for name in (name for name in FORWARDS if name in options.models):
            rows = measure_forward(name, options, device, deadline, tell)
            result = replace(result, rows=(*result.rows, *rows))
            save(result)
        if "traffic" in options.models:
            result = replace(result, traffic=measure_traffic(options, device, deadline, tell))
            save(result)
    result = replace(result, head=head | {"seconds": round(deadline.spent_s, 1)})
    save(result)
    return result


@contextmanager
def _without_advice() -> Iterator[None]:
    """Keep back what torch and transformers say of options that are measured here on purpose."""
    from transformers.utils import logging

    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def device_named(name: str) -> torch.device:
    """Return the device that a word names.

    Raises:
        UsageError: OST4023, a GPU was asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "--device cuda was asked for, and torch sees no CUDA device",
            code="OST4023",
            remedy="use --device auto, or run it on a machine with a GPU",
        )
    is_gpu = name != "cpu" and torch.cuda.is_available()
    return torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")


def to_dict(result: GraphsResult) -> dict[str, Any]:
    """Return the result with its claims as values that JSON can hold."""
    values = {
        **result.head,
        "is_tiny": result.is_tiny,
        "rows": [asdict(row) for row in result.rows],
        "generations": [asdict(row) for row in result.generations],
        "traffic": None if result.traffic is None else result.traffic.to_dict(),
        "claims": [asdict(claim) for claim in claims_of(result)],
    }
    finite: dict[str, Any] = _finite(values)
    return finite


def _finite(value: Any) -> Any:
    """Write numbers that JSON has no word for as text, and leave spurious digits out."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value
