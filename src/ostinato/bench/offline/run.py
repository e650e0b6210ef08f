"""The whole benchmark: arrivals, then prompts that share beginnings."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ostinato.bench.attempt import error_text
from ostinato.bench.decode.models import MODELS, TINY
from ostinato.bench.head import describe_run
from ostinato.bench.offline.arrivals import WINDOW_S, draw_window, fitted, read_window
from ostinato.bench.offline.prefixes import (
    DRAWN,
    SCALE,
    draw_shared,
    ideal_share,
    pages_needed,
    read_shared,
)
from ostinato.bench.offline.replay import replay_arrivals, replay_shared
from ostinato.bench.offline.results import (
    ArrivalsRow,
    Objective,
    OfflineResult,
    PrefixesRow,
    percentiles,
)
from ostinato.bench.run import device_named
from ostinato.errors import UsageError
from ostinato.llm import Engine, EngineConfig
from ostinato.llm.models import DecoderConfig

Save = Callable[[OfflineResult], None]
Tell = Callable[[str], None]

PARTS = ("arrivals", "prefixes")
_SPARE_PAGES = 64


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """What to measure.

    Attributes:
        parts: Of `PARTS`.
        model: For the arrivals.
        arrivals, prefixes: Files with the traces; None: drawn with their statistics.
        load: Of the arrivals, as a share of what the engine gives when all come at once.
        requests: The most of the prefixes part.
        engine: Options of the engine.
        is_tiny: Toy sizes: to see that everything runs.

    Raises:
        UsageError: OST4021, a part or model that is not known.
    """

    parts: tuple[str, ...] = PARTS
    model: str = "llama3.2-1b"
    device: str = "auto"
    arrivals: Path | None = None
    prefixes: Path | None = None
    load: float = 0.9
    requests: int | None = None
    objective: Objective = field(default_factory=Objective)
    engine: Mapping[str, Any] = field(default_factory=dict)
    is_tiny: bool = False

    def __post_init__(self) -> None:
        for words, known in ((self.parts, PARTS), ((self.model,), tuple(MODELS))):
            for word in words:
                if word not in known:
                    raise UsageError(
                        f"there is no {word!r}",
                        code="OST4021",
                        remedy=f"choose from {', '.join(known)}",
                    )


def run_offline(options: OfflineOptions, *, tell: Tell, save: Save) -> OfflineResult:
    """Measure what `options` ask for.

    Args:
        tell: Is told what begins, for people who wait.
        save: Gets the result so far after every part.
    """
    device = device_named(options.device)
    asked = {
        "parts": list(options.parts),
        "model": options.model,
        "load": options.load,
        "engine": dict(options.engine),
        "is_tiny": options.is_tiny,
    }
    head = describe_run(device) | {"benchmark": "offline", "options": asked}
    result = OfflineResult(head, options.objective)
    if "arrivals" in options.parts:
        tell("arrivals")
        result = replace(result, arrivals=_arrivals(options, device))
        save(result)
        gc.collect()  # an engine is a ring of objects; the next one needs its memory
    if "prefixes" in options.parts:
        tell("prefixes")
        result = replace(result, prefixes=_prefixes(options, device))
        save(result)
    return result


def _arrivals(options: OfflineOptions, device: torch.device) -> ArrivalsRow:
    window_s = 10.0 if options.is_tiny else WINDOW_S
    if options.arrivals is None:
        window, trace = draw_window(window_s)
    else:
        window, trace = read_window(options.arrivals, window_s), options.arrivals.name
    most = 256 if options.is_tiny else 16384
    window = fitted(window, most, 0.02 if options.is_tiny else 1.0)
    row = ArrivalsRow(options.model, trace, len(window))
    config = {**(TINY if options.is_tiny else MODELS[options.model])}
    config["max_position_embeddings"] = most
    try:
        with _engine(config, options, device, max_waiting=len(window) + 1) as engine:
            engine.wait_warm()
            for _ in range(2):  # the first time, shapes of its own are recorded
                full = replay_arrivals(engine, window, None)
            speed = options.load * window_s / full.seconds
            before = engine.counts().scheduler.preemptions
            paced = replay_arrivals(engine, window, speed)
            preemptions = engine.counts().scheduler.preemptions - before
    except Exception as error:  # noqa: BLE001 - it becomes the row of the result, in full view
        return replace(row, error=error_text(error))
    good = [one for one in paced.answered if one.keeps(options.objective)]
    return replace(
        row,
        speed=speed,
        load=options.load,
        full_tok_s=full.tokens / full.seconds,
        tok_s=paced.tokens / paced.seconds,
        goodput_tok_s=sum(one.tokens for one in good) / paced.seconds,
        kept=len(good) / len(paced.answered),
        preemptions=preemptions,
        ttft_s=percentiles([one.ttft_s for one in paced.answered]),
        tpot_s=percentiles([one.tpot_s for one in paced.answered if one.tpot_s is not None]),
    )


def _prefixes(options: OfflineOptions, device: torch.device) -> PrefixesRow:
    if options.prefixes is None:
        requests, trace = draw_shared(options.requests or 2000), DRAWN
    else:
        requests = read_shared(options.prefixes, options.requests)
        trace = f"{options.prefixes.name}, lengths / {SCALE}"
    if options.is_tiny:
        requests = requests[:60]
    row = PrefixesRow("smollm2-135m", trace, len(requests), ideal=ideal_share(requests))
    config = DecoderConfig.from_dict(TINY if options.is_tiny else MODELS[row.model])
    longest = max(one.context + one.generated for one in requests)
    try:
        with _engine(
            config,
            options,
            device,
            max_model_len=min(longest + 1, config.max_positions),
            kv_pages=pages_needed(requests) + _SPARE_PAGES,
            prefix_cache=True,
        ) as engine:
            engine.wait_warm()
            seconds = replay_shared(engine, requests, at_once=8 if options.is_tiny else 64)
            counts = engine.counts().scheduler
    except Exception as error:  # noqa: BLE001 - it becomes the row of the result, in full view
        return replace(row, error=error_text(error))
    return replace(row, hit=counts.cached_tokens / counts.prompt_tokens, seconds=seconds)


def _engine(
    config: Mapping[str, Any] | DecoderConfig,
    options: OfflineOptions,
    device: torch.device,
    *,
    kv_pages: int | None = None,
    **more: Any,
) -> Engine:
    decoder = config if isinstance(config, DecoderConfig) else DecoderConfig.from_dict(config)
    if kv_pages is not None:
        itemsize = 2 if device.type == "cuda" else 4
        page = 2 * decoder.layers * 16 * decoder.kv_heads * decoder.head_dim * itemsize
        more["kv_memory"] = kv_pages * page
    return Engine(
        EngineConfig.read(
            {
                "model": decoder,
                "load": "dummy",
                "device": str(device),
                **more,
                **options.engine,
            }
        )
    )
