"""How a model's layers are best computed on this GPU: measured once, and kept for its engines.

Plans follow from a model's sizes, so weights are dummies and none is read. The engine itself never
does this: it would take minutes before a first token, and measure beside whatever else runs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ostinato.bench.attempt import Deadline
from ostinato.bench.decode.models import MODELS, TINY
from ostinato.bench.run import device_named
from ostinato.errors import UsageError
from ostinato.llm.attention import choose
from ostinato.llm.models import DecoderConfig, build, read_config

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What to measure.

    Attributes:
        models: Names in `MODELS`, or transformers folders; none: all of `MODELS`.
        quantize: How the layers' matrices are kept.
        tokens: Numbers of tokens; none: all that are ever measured.
        budget_s: Begin nothing more after so many seconds, and keep what was found.
        again: Whether to measure what was measured before.
        is_tiny: A toy for each name: to see that everything runs.

    Raises:
        UsageError: OST4021, a number of tokens that is never measured.
    """

    models: tuple[str, ...] = ()
    quantize: Literal["none", "int8", "fp8"] = "none"
    tokens: Sequence[int] = ()
    device: str = "auto"
    budget_s: float | None = None
    again: bool = False
    is_tiny: bool = False


def run_plans(options: PlanOptions, *, tell: Tell) -> dict[str, Any]:
    """Measure what `options` ask for, and return what serves each model now.

    Args:
        tell: Is told what begins, for people who wait.

    Returns:
        By model, its plans in words, or why it has none; for how many tokens they were measured;
        the file that keeps them.

    Raises:
        UsageError: OST4021, a number of tokens that is never measured; as `read_config`, a folder
            that cannot be read.
    """
    device = device_named(options.device)
    deadline = Deadline(options.budget_s)
    configs = {name: _config_of(name, options) for name in options.models or tuple(MODELS)}
    found: dict[str, Any] = {}
    for name, config in configs.items():
        if deadline.refusal:
            found[name] = {"why": deadline.refusal}
            continue
        tell(name)
        found[name] = _measured(config, options, device, deadline, tell)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return {"benchmark": "plans", "device": str(device), "models": found}


def _config_of(name: str, options: PlanOptions) -> DecoderConfig:
    if name in MODELS:
        return DecoderConfig.from_dict(TINY if options.is_tiny else MODELS[name])
    return read_config(Path(name).expanduser())


def _measured(
    config: DecoderConfig,
    options: PlanOptions,
    device: torch.device,
    deadline: Deadline,
    tell: Tell,
) -> Mapping[str, Any]:
    dtype = torch.bfloat16
    decoder = build(config, dtype=dtype, device=device, load="dummy", quantize=options.quantize)
    if decoder.decode_path.name != "fused":
        return {"why": decoder.decode_path.why}
    # Only here: not every machine has triton.
    from ostinato.llm.models.llama import LlamaDecoder
    from ostinato.llm.models.measuring import TOKENS, measure_and_keep
    from ostinato.llm.models.plan_file import own_file

    assert isinstance(decoder, LlamaDecoder)
    strangers = [count for count in options.tokens if count not in TOKENS]
    if strangers:
        raise UsageError(
            f"plans are not measured for {strangers[0]} tokens",
            code="OST4021",
            remedy=f"choose from {', '.join(map(str, sorted(TOKENS)))}",
        )
    backend, _ = choose(config.attention, device=device, dtype=dtype)
    plans = measure_and_keep(
        decoder,
        backend,
        is_over=lambda: bool(deadline.refusal),
        tell=lambda what: tell(f"  {what}"),
        again=options.again,
        tokens=options.tokens or TOKENS,
    )
    return {
        "plans": plans.description,
        "measured": list(plans.measured),
        "missing": deadline.refusal,
        "file": str(own_file()),
    }


def plans_as_text(result: Mapping[str, Any]) -> str:
    """Return the result for people, a paragraph for each model."""
    parts = []
    for name, facts in result["models"].items():
        lines = [name]
        if "plans" not in facts:
            lines.append(f"  not measured: {facts['why']}")
        else:
            lines.append(f"  {facts['plans']}")
            lines.append(f"  measured for {', '.join(map(str, facts['measured']))} tokens")
            lines += [f"  {facts['missing']}"] if facts["missing"] else []
            lines.append(f"  kept in {facts['file']}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
