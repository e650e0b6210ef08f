"""What people use today for the same work: transformers, eager and with a compiled static cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from types import MappingProxyType
from typing import Any

import torch

from ostinato.bench.attempt import Deadline, error_text
from ostinato.bench.decode.ours import Work
from ostinato.bench.decode.rows import DecodeRow

EAGER, STATIC = "transformers", "transformers, static cache, compiled"
WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {EAGER: {}, STATIC: {"cache_implementation": "static"}}
)


def measure_peers(
    engine: str,
    name: str,
    config: Mapping[str, Any],
    batches: Sequence[int],
    work: Work,
    device: torch.device,
    dtype: torch.dtype,
    deadline: Deadline,
    floor_ms: float | None,
) -> Iterator[DecodeRow]:
    """Yield a row for each batch of one model, in one of `WAYS`."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    if deadline.refusal:
        yield from (DecodeRow(engine, name, each, error=deadline.refusal) for each in batches)
        return
    told = {key: value for key, value in config.items() if key not in ("torch_dtype", "model_type")}
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(LlamaConfig(**told), dtype=dtype).eval()
    except Exception as error:  # noqa: BLE001 - it becomes the rows of the result, in full view
        yield from (DecodeRow(engine, name, each, error=error_text(error)) for each in batches)
        return
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    for batch in batches:
        if deadline.refusal:
            yield DecodeRow(engine, name, batch, error=deadline.refusal)
        else:
            yield _row(engine, name, model, batch, work, WAYS[engine], floor_ms)
    del model
    gc.collect()


def _row(
    engine: str,
    name: str,
    model: Any,
    batch: int,
    work: Work,
    how: Mapping[str, Any],
    floor_ms: float | None,
) -> DecodeRow:
    try:
        _time(model, batch, 8, work, how)
        _time(model, batch, work.new + 1, work, how)
        first_s = median(_time(model, batch, 1, work, how) for _ in range(2))
        tpot_s = (_time(model, batch, work.new + 1, work, how) - first_s) / work.new
    except Exception as error:  # noqa: BLE001 - it becomes a row of the result, in full view
        return DecodeRow(engine, name, batch, error=error_text(error))
    return DecodeRow(
        engine,
        name,
        batch,
        tpot_ms=tpot_s * 1e3,
        ttft_ms=first_s * 1e3,
        tok_s=batch / tpot_s,
        floor_ms=floor_ms,
        setting=f"{work.prompt} in, {work.new} out, greedy",
    )


def _time(model: Any, batch: int, new: int, work: Work, how: Mapping[str, Any]) -> float:
    top = model.config.vocab_size - 1
    ids = torch.randint(3, top, (batch, work.prompt), device=model.device)
    mask = torch.ones_like(ids)
    if ids.is_cuda:
        torch.cuda.synchronize(ids.device)
    began = perf_counter()
    with torch.inference_mode():
        answer = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            **how,
        )
    answer[:, -1].tolist()  # waits for the device
    return perf_counter() - began
