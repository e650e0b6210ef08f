"""Our engine, as a program uses it: requests go in, answers are awaited."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ostinato.bench.attempt import error_text
from ostinato.bench.decode.kernels import kernels_of
from ostinato.bench.decode.parts import Rates, StepSizes, with_floors
from ostinato.bench.decode.rows import DecodeRow
from ostinato.llm import Engine, EngineConfig, SamplingParams
from ostinato.llm.models import DecoderConfig
from ostinato.measure import Spread

if TYPE_CHECKING:
    from collections.abc import Callable

_PROFILED = 40
"""Tokens of an answer whose kernels are looked at: of many more the profiler loses some."""


@dataclass(frozen=True, slots=True)
class Work:
    """What every batch is made to do.

    Attributes:
        prompt, new: Tokens.
        firsts, wholes: How often the first tokens and the whole answers are timed.
    """

    prompt: int = 128
    new: int = 128
    firsts: int = 5
    wholes: int = 3


@dataclass(frozen=True, slots=True)
class _Timed:
    seconds: float
    submit_s: float
    span_s: float
    steps: int


def measure_ours(
    label: str,
    name: str,
    config: Mapping[str, Any],
    batches: Sequence[int],
    work: Work,
    *,
    options: Mapping[str, Any],
    rates: Rates,
    with_kernels: bool,
    note: Callable[[Mapping[str, Any]], None],
) -> Iterator[DecodeRow]:
    """Yield a row for each batch of one model.

    Args:
        label: What the engine is called, with these options.
        options: Of the engine.
        rates: How fast the device reads and multiplies.
        with_kernels: Whether each row says which kernels its steps ran, and for how long.
        note: Is told facts about the model.
    """
    began = perf_counter()
    decoder = DecoderConfig.from_dict(config)
    try:
        engine = Engine(
            EngineConfig.read(
                {
                    "model": decoder,
                    "load": "dummy",
                    "max_batch": max(batches),
                    "max_model_len": work.prompt + work.new + 32,
                    "prefix_cache": False,
                    **options,
                }
            )
        )
    except Exception as error:  # noqa: BLE001 - it becomes the rows of the result, in full view
        for batch in batches:
            yield DecodeRow(label, name, batch, error=error_text(error))
        return
    with engine:
        ready_s = perf_counter() - began
        chance = random.Random(0)
        _run(engine, 1, 1, work, chance)
        first_s = perf_counter() - began
        engine.wait_warm()
        warm_s = perf_counter() - began
        floor_ms = engine.read_bytes / rates.read_tb_s / 1e9 if rates.read_tb_s else None
        sizes = StepSizes.of(
            decoder,
            weight_bytes=2 if options.get("quantize", "none") == "none" else 1,
            cached=work.prompt + min(work.new, _PROFILED) / 2,
        )
        for batch in batches:
            row = _row(engine, label, name, batch, work, chance, floor_ms)
            if with_kernels:
                row = _with_kernels(row, engine, work, chance, sizes, rates)
            yield row
        note(
            {
                "read_bytes": engine.read_bytes,
                "ready_s": round(ready_s, 2),
                "first_token_s": round(first_s, 2),
                "warm_s": round(warm_s, 2),
                "attention": engine.attention_choice.name,
                "path": engine.decode_path.name,
                "why": engine.decode_path.why,
                "recordings_bytes": sum(graph.bytes for graph in engine.report().graphs),
                "recordings": len(engine.report().graphs),
            }
        )


def _row(
    engine: Engine,
    label: str,
    name: str,
    batch: int,
    work: Work,
    chance: random.Random,
    floor_ms: float | None,
) -> DecodeRow:
    try:
        for _ in range(2):  # the first time, shapes are recorded
            _run(engine, batch, work.new, work, chance)
        begun = [_run(engine, batch, 1, work, chance) for _ in range(work.firsts)]
        wholes = [_run(engine, batch, work.new + 1, work, chance) for _ in range(work.wholes)]
    except Exception as error:  # noqa: BLE001 - it becomes a row of the result, in full view
        return DecodeRow(label, name, batch, error=error_text(error))
    first = Spread.of([each.seconds * 1e6 for each in begun])
    first_s = first.median_us / 1e6
    spread = Spread.of([(whole.seconds - first_s) / work.new * 1e6 for whole in wholes])
    # By token, as the wall time is: prompts that come by turns make more steps than tokens.
    spans = [whole.span_s / work.new * 1e3 for whole in wholes if whole.span_s]
    return DecodeRow(
        label,
        name,
        batch,
        tpot_ms=spread.median_us / 1e3,
        ttft_ms=first_s * 1e3,
        tpot_iqr_ms=spread.iqr_us / 1e3,
        ttft_iqr_ms=first.iqr_us / 1e3,
        tok_s=batch / spread.median_us * 1e6,
        span_ms=median(spans) if spans else None,
        floor_ms=floor_ms,
        setting=f"{work.prompt} in, {work.new} out, greedy, K {engine.limits.steps_per_launch}",
        submit_ms=median(each.submit_s for each in begun) * 1e3,
    )


def _with_kernels(
    row: DecodeRow,
    engine: Engine,
    work: Work,
    chance: random.Random,
    sizes: StepSizes,
    rates: Rates,
) -> DecodeRow:
    if row.error:
        return row
    try:
        first, whole = (
            partial(_run, engine, row.batch, new, work, chance)
            for new in (1, min(work.new, _PROFILED) + 1)
        )
        found = kernels_of(first, whole, layers=sizes.layers)
    except Exception as error:  # noqa: BLE001 - the row's own numbers are good all the same
        return replace(row, setting=f"{row.setting}; no kernels: {error_text(error)}")
    return replace(
        row,
        first_busy_ms=found.first_busy_ms,
        first_kernels=found.first,
        kernels=found.steps,
        parts=with_floors(found.parts, sizes, row.batch, rates),
    )


def _run(engine: Engine, batch: int, new: int, work: Work, chance: random.Random) -> _Timed:
    """Submit a batch and wait for all of it; prompts are random, so that none is like another."""
    top = engine.vocabulary - 1
    prompts = [[chance.randint(3, top) for _ in range(work.prompt)] for _ in range(batch)]
    params = SamplingParams(max_tokens=new, temperature=0, ignore_eos=True)
    before = engine.counts()
    began = perf_counter()
    streams = [engine.ask(prompt, params) for prompt in prompts]
    submit_s = perf_counter() - began
    outputs = [stream.result() for stream in streams]
    seconds = perf_counter() - began
    for output in outputs:
        if output.error is not None:
            raise output.error
        assert len(output.token_ids) == new, f"{len(output.token_ids)} tokens of {new}"
    after = engine.counts()
    return _Timed(seconds, submit_s, after.device_s - before.device_s, after.steps - before.steps)
