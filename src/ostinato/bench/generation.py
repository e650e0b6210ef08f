"""Text generated token by token: the model's own `generate` beside `accelerate(model).generate`.

Greedy, batch 1, without an end-of-sequence id, so that all answers have one length. Every round has
a new prompt of the same length, and all ways take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ostinato.bench import models
from ostinato.bench.attempt import Attempt, Deadline, error_text
from ostinato.bench.by_hand import GraphedCallable, RawGraph
from ostinato.bench.forwards import Tell, forgotten_after
from ostinato.bench.options import GraphsOptions
from ostinato.bench.results import Contender, GenerationRow
from ostinato.hf import accelerate, first_divergence
from ostinato.measure import Spread, wait_for

GENERATE, STATIC, ACCELERATED = "generate", "generate, static cache", "accelerate"
RAW, CALLABLES = Contender.RAW.label, Contender.CALLABLES.label
_PROMPT_TOKENS = 32

Generate = Callable[..., Tensor]


@dataclass(slots=True)
class _Way:
    """One way to generate, with what it has done so far."""

    name: str
    generate: Generate
    note: Callable[[], str]
    first_s: float = 0.0
    times_us: list[float] = field(default_factory=list)
    answers: list[Tensor] = field(default_factory=list)
    error: str = ""


def measure_generation(
    name: str, options: GraphsOptions, device: torch.device, deadline: Deadline, tell: Tell
) -> list[GenerationRow]:
    """Return the rows of one model; SmolLM2 comes in every dtype that is worth its time here."""
    dtypes = [models.dtype_for(device)]
    if name == "smollm2-decode" and device.type == "cuda":
        dtypes = [torch.bfloat16, torch.float32]
    rows: list[GenerationRow] = []
    for dtype in dtypes:
        if deadline.refusal:
            rows.append(
                GenerationRow(name, models.short_name(dtype), ACCELERATED, error=deadline.refusal)
            )
            continue
        tell(f"{name}: building, {models.short_name(dtype)}")
        with forgotten_after():
            rows += _measure_model(name, options, device, dtype, tell)
    return rows


def _measure_model(
    name: str,
    options: GraphsOptions,
    device: torch.device,
    dtype: torch.dtype,
    tell: Tell,
) -> list[GenerationRow]:
    torch.manual_seed(0)
    built = Attempt(lambda: _build(name, options, device, dtype))
    if built.value is None:
        return [GenerationRow(name, models.short_name(dtype), ACCELERATED, error=built.error)]
    model, weights = built.value
    new_tokens = _new_tokens(name, options)
    prompts = _prompts(model, options, device)
    setting = f"{models.short_name(dtype)}, prompt {prompts[0].shape[1]}, {weights}"
    ways = _ways(model)
    if name == "smollm2-decode":
        ways += _by_hand(model, prompts[0].shape[1] + new_tokens)
    if _is_static_worth_it(name, options, device, dtype):
        ways.append(_static_way(model))
    for way in ways:
        tell(f"{name}: {way.name}, first answers")
        _begin(way, prompts[-2:], new_tokens, device)
    tell(f"{name}: timing")
    for number, prompt in enumerate(prompts[:-2]):
        for way in ways if number % 2 == 0 else reversed(ways):
            _answer(way, prompt, new_tokens, device)
    rows = [_row(name, setting, way, new_tokens) for way in ways]
    return [_compared(row, way, ways[0], model) for row, way in zip(rows, ways, strict=True)]


def _build(
    name: str, options: GraphsOptions, device: torch.device, dtype: torch.dtype
) -> tuple[Any, str]:
    if name == "gpt2":
        return models.gpt2(options, device), models.RANDOM
    return models.smollm2(options, device, dtype)


def _new_tokens(name: str, options: GraphsOptions) -> int:
    if options.is_tiny:
        return 12
    return 100 if name == "gpt2" else 128


def _prompts(model: Any, options: GraphsOptions, device: torch.device) -> list[Tensor]:
    """Return one prompt for each timed answer, and two for the first ones."""
    tokens = 8 if options.is_tiny else _PROMPT_TOKENS
    vocabulary = model.config.vocab_size
    count = options.effort.answers + 2
    return [torch.randint(1, vocabulary, (1, tokens), device=device) for _ in range(count)]


def _ways(model: Any) -> list[_Way]:
    fast = accelerate(model)
    return [
        _Way(GENERATE, model.generate, lambda: ""),
        _Way(ACCELERATED, fast.generate, lambda: str(fast.last)),
    ]


def _by_hand(model: Any, length: int) -> list[_Way]:
    error = "" if model.device.type == "cuda" else "needs a CUDA device"
    return [
        _Way(RAW, RawGraph(model, length).generate, lambda: "", error=error),
        _Way(CALLABLES, GraphedCallable(model, length).generate, lambda: "", error=error),
    ]


def _is_static_worth_it(
    name: str, options: GraphsOptions, device: torch.device, dtype: torch.dtype
) -> bool:
    """Compiling takes about a minute, so it is done once; on a CPU transformers does not."""
    is_once = name == "smollm2-decode" and dtype is torch.bfloat16
    return is_once and device.type == "cuda" and options.effort.answers > 2


def _static_way(model: Any) -> _Way:
    def generate(*args: Any, **kwargs: Any) -> Tensor:
        tokens: Tensor = model.generate(*args, cache_implementation="static", **kwargs)
        return tokens

    return _Way(STATIC, generate, lambda: "compiled by transformers")


def _begin(way: _Way, prompts: list[Tensor], new_tokens: int, device: torch.device) -> None:
    """Two answers that are not timed: the first compiles and records, the second what is left."""
    for number, prompt in enumerate(prompts):
        began = perf_counter()
        _answer(way, prompt, new_tokens, device)
        if number == 0:
            way.first_s = perf_counter() - began
    way.times_us.clear()
    way.answers.clear()


def _answer(way: _Way, prompt: Tensor, new_tokens: int, device: torch.device) -> None:
    if way.error:
        return
    try:
        wait_for(device)
        began = perf_counter()
        tokens = way.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new_tokens,
            do_sample=False,
        )
        wait_for(device)
    except Exception as error:  # noqa: BLE001 - it becomes a row of the result, in full view
        way.error = error_text(error)
        return
    way.times_us.append((perf_counter() - began) * 1e6)
    way.answers.append(tokens.clone())


def _row(name: str, setting: str, way: _Way, new_tokens: int) -> GenerationRow:
    if way.error or not way.times_us:
        return GenerationRow(name, setting, way.name, new_tokens, error=way.error or "no answers")
    answer = Spread.of(way.times_us)
    return GenerationRow(
        name,
        setting,
        way.name,
        new_tokens,
        answer=answer,
        tokens_per_s=new_tokens / (answer.median_us / 1e6),
        first_call_s=way.first_s,
        note=way.note(),
    )


def _compared(row: GenerationRow, way: _Way, base: _Way, model: Any) -> GenerationRow:
    """Say how many answers are those of `base`, and how the first other one came about."""
    if row.error or base.error or way is base:
        return row
    pairs = list(zip(way.answers, base.answers, strict=True))
    unequal = [pair for pair in pairs if not torch.equal(*pair)]
    parting = ""
    if unequal:
        found = Attempt(lambda: str(first_divergence(model, *unequal[0])))
        parting = found.value or found.error
    same = (len(pairs) - len(unequal), len(pairs))
    return replace(row, same_tokens=same, parting=parting)
