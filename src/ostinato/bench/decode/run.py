"""The whole benchmark: our engine on every model, then the others, and the result so far each time.

What is quick comes before what compiles for minutes, so that a budget that runs out leaves the more
rows measured.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ostinato.bench.attempt import Deadline
from ostinato.bench.decode.bandwidth import products_tflop_s, read_tb_s
from ostinato.bench.decode.models import MODELS, TINY
from ostinato.bench.decode.ours import Work, measure_ours
from ostinato.bench.decode.parts import Rates
from ostinato.bench.decode.peers import WAYS, measure_peers
from ostinato.bench.decode.rows import OURS, DecodeResult, DecodeRow
from ostinato.bench.head import describe_run
from ostinato.bench.run import device_named
from ostinato.errors import UsageError

BATCHES = (1, 8, 32, 128, 256)
Save = Callable[[DecodeResult], None]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What to measure.

    Attributes:
        models: Names in `MODELS`; none: all.
        with_peers: Whether transformers is measured beside.
        peer_batches: Batches for transformers.
        engine: Options of the engine.
        quantize: Kinds of weights, in rows of their own beside the plain ones.
        with_kernels: Whether rows of the engine say which kernels ran.
        budget_s: After so many seconds, what remains is reported as not run.
        is_tiny: Toy sizes: to see that everything runs.

    Raises:
        UsageError: OST4021, a model that is not known.
    """

    models: tuple[str, ...] = ()
    batches: Sequence[int] = BATCHES
    device: str = "auto"
    with_peers: bool = True
    peer_batches: Sequence[int] = (1, 32)
    engine: Mapping[str, Any] = field(default_factory=dict)
    quantize: tuple[str, ...] = ()
    with_kernels: bool = False
    budget_s: float | None = None
    is_tiny: bool = False

    def __post_init__(self) -> None:
        strangers = [name for name in self.models if name not in MODELS]
        if strangers:
            raise UsageError(
                f"there is no model {strangers[0]!r}",
                code="OST4021",
                remedy=f"choose from {', '.join(MODELS)}",
            )

    @property
    def chosen(self) -> tuple[str, ...]:
        """The models, smallest last."""
        return self.models or tuple(MODELS)


def run_decode(options: DecodeOptions, *, tell: Tell, save: Save) -> DecodeResult:
    """Measure what `options` ask for.

    Args:
        tell: Is told what begins, for people who wait.
        save: Gets the result so far after every row.
    """
    device = device_named(options.device)
    deadline = Deadline(options.budget_s)
    tell("how fast it reads and multiplies")
    rates = Rates(read_tb_s(device), products_tflop_s(device))
    asked = {key: value for key, value in asdict(options).items() if key != "engine"}
    head = describe_run(device) | {"benchmark": "decode", "options": asked}
    result = DecodeResult(head | {"engine_options": dict(options.engine)}, rates)
    for name in options.chosen:
        for kind in ("none", *options.quantize):
            result = _ours(name, kind, options, device, deadline, result, tell, save)
            _free(device)
    for engine in WAYS if options.with_peers else ():
        for name in reversed(options.chosen):
            result = _peers(engine, name, options, device, deadline, result, tell, save)
            _free(device)
    return result


def _ours(
    name: str,
    quantize: str,
    options: DecodeOptions,
    device: torch.device,
    deadline: Deadline,
    result: DecodeResult,
    tell: Tell,
    save: Save,
) -> DecodeResult:
    facts: dict[str, Any] = {}
    label = OURS if quantize == "none" else f"{OURS}, {quantize}"
    if deadline.refusal:
        rows = [DecodeRow(label, name, each, error=deadline.refusal) for each in options.batches]
        return replace(result, rows=(*result.rows, *rows))
    tell(f"{name}: {label}")
    measured = measure_ours(
        label,
        name,
        TINY if options.is_tiny else MODELS[name],
        options.batches,
        _work(options),
        options={"device": str(device), "quantize": quantize, **options.engine},
        rates=result.rates,
        with_kernels=options.with_kernels,
        note=facts.update,
    )
    for row in measured:
        result = replace(result, rows=(*result.rows, row))
        save(result)
    known = name if quantize == "none" else f"{name}, {quantize}"
    result = replace(result, models={**result.models, known: facts})
    save(result)
    return result


def _peers(
    engine: str,
    name: str,
    options: DecodeOptions,
    device: torch.device,
    deadline: Deadline,
    result: DecodeResult,
    tell: Tell,
    save: Save,
) -> DecodeResult:
    tell(f"{name}: {engine}")
    own = next((row for row in result.rows if row.model == name), None)
    rows = measure_peers(
        engine,
        name,
        TINY if options.is_tiny else MODELS[name],
        options.peer_batches,
        _work(options),
        device,
        torch.bfloat16 if device.type == "cuda" else torch.float32,
        deadline,
        None if own is None else own.floor_ms,
    )
    for row in rows:
        result = replace(result, rows=(*result.rows, row))
        save(result)
    return result


def _work(options: DecodeOptions) -> Work:
    return Work(prompt=20, new=8, firsts=2, wholes=2) if options.is_tiny else Work()


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
