"""Which plan computes a decoder's layers fastest: measured in whole steps, once, and kept.

A product that is fast alone may be slow in a step, where its programs begin while those of the one
ahead still run. So all layers are recorded and replayed for every candidate, on the model's own
weights. Candidates are few: the plans that a layer of these sizes has by rule, some near them, and
the library.

An engine reads what was found out before and never waits for a measurement: it takes half a minute,
most of it compiling, and is made by whoever calls `measure_and_keep` on a loaded decoder.

Shapes: N tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
import triton

from ostinato.graphs import graphed
from ostinato.llm.attention.base import AttentionBackend, DecodeAttend
from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.kv.store import KvStore
from ostinato.llm.models.fused import Fused, sizes_of
from ostinato.llm.models.fused_plans import (
    LayerPlan,
    LayerPlans,
    LayerSizes,
    Product,
    few_plan,
    tile_plan,
)
from ostinato.llm.models.plan_file import PACKAGED, keep_plans, own_file, read_plans

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.models.llama import LlamaDecoder

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SMALL = 1024
_CACHED, _PAGE_TOKENS = 128, 16
_REPLAYS, _ROUNDS = 20, 3
_GAIN = 0.99
"""Another plan must be so much faster; less is noise."""


def known(decoder: LlamaDecoder) -> LayerPlans | None:
    """Return the plans that were measured for layers of such sizes on such a GPU, if any were."""
    own, packaged = _keys(decoder)
    return read_plans(own_file(), own) or read_plans(PACKAGED, packaged)


def measure_and_keep(decoder: LlamaDecoder, backend: AttentionBackend) -> LayerPlans:
    """Return the fastest plans, and keep them for the engines to come on this machine.

    Args:
        decoder: Its weights are in place, and it has fused layers.
    """
    found = measure(decoder, backend)
    keep_plans(own_file(), _keys(decoder)[0], found)
    return found


def measure(
    decoder: LlamaDecoder, backend: AttentionBackend, tokens: Sequence[int] = TOKENS
) -> LayerPlans:
    """Return the fastest plan for each number of tokens, and of those in between."""
    assert decoder.fused is not None
    bench = _Bench(decoder.fused, backend)
    with torch.inference_mode():
        best = [bench.best(count) for count in tokens]
    starts = [at for at in range(1, len(best)) if best[at] != best[at - 1]]
    up_to = tuple(tokens[at - 1] for at in starts)
    return LayerPlans(up_to, tuple(best[at] for at in (0, *starts)))


def candidates(product: Product, tokens: int) -> Iterator[FewPlan | TilePlan | None]:
    """Yield the plans that are worth a trial for a product of so many tokens."""
    if tokens <= 2:
        yield few_plan(product)
    tile = tile_plan(product)
    yield tile
    if tokens == 1:
        return
    for splits in (tile.splits // 2, tile.splits * 2):
        split = replace(tile, splits=splits)
        if splits >= 1 and split.fits(product.inputs):
            yield split
    if min(product.inputs, product.outputs) > _SMALL:
        yield replace(tile, stages=tile.stages + 1)
        if product.in_pairs:
            yield replace(tile, outputs=2 * tile.outputs, warps=8, splits=1)
    else:
        yield replace(tile, is_patient=not tile.is_patient)
        for outputs in (32, 64):
            yield replace(tile, outputs=outputs, splits=1, is_patient=True)
    yield None


@dataclass(frozen=True, slots=True)
class _Bench:
    """Steps of a decoder, timed."""

    fused: Fused
    backend: AttentionBackend

    def best(self, tokens: int) -> LayerPlan:
        """Return the fastest plan, found product by product, the largest first."""
        sizes = sizes_of(self.fused.decoder.config)
        plan = self.fused.plans.fit(tokens)
        fastest = self._time(plan, tokens)
        for name in ("gate_up", "down", "qkv", "out"):
            for candidate in candidates(getattr(sizes, name), tokens):
                trial = replace(plan, **{name: candidate})
                if trial != plan and (taken := self._time(trial, tokens)) < fastest * _GAIN:
                    fastest, plan = taken, trial
        return plan

    def _time(self, plan: LayerPlan, tokens: int) -> float:
        """Return seconds of a step; infinity where the plan does not fit the device."""
        fused = replace(self.fused, plans=LayerPlans((), (plan,)))
        decoder = fused.decoder
        device = decoder.embedding.weight.device
        config, pages = decoder.config, _CACHED // _PAGE_TOKENS
        dtype = decoder.embedding.weight.dtype
        store = KvStore(
            config.layers, pages + 1, _PAGE_TOKENS, config.kv_heads, config.head_dim, dtype, device
        )
        # Rows share their pages, and write to page 0: what they attend to does not matter here.
        pages_BP = torch.arange(1, pages + 1, dtype=torch.int32, device=device).repeat(tokens, 1)
        lengths_B = torch.full((tokens,), _CACHED, dtype=torch.int32, device=device)
        zeros_B = torch.zeros(tokens, dtype=torch.int64, device=device)
        attend = DecodeAttend(self.backend, store, pages_BP, lengths_B)
        try:
            return _replayed_s(lambda: fused.run(zeros_B, zeros_B, zeros_B, attend), store, device)
        except triton.runtime.errors.OutOfResources:
            return float("inf")


def _replayed_s(step: Callable[[], Tensor], store: KvStore, device: torch.device) -> float:
    """Return the least seconds of a recorded step."""
    with graphed(
        step,
        admit_after=1,
        warmups=1,
        outputs="leased",
        on_unfit="raise",
        scratch=(store.keys, store.values),
    ) as runner:
        runner()
        least = float("inf")
        for _ in range(_ROUNDS):
            torch.cuda.synchronize(device)
            began = time.perf_counter()
            for _ in range(_REPLAYS):
                runner()
            torch.cuda.synchronize(device)
            least = min(least, (time.perf_counter() - began) / _REPLAYS)
    return least


def _named(decoder: LlamaDecoder) -> str:
    """Return what the plans depend on, in words."""
    sizes: LayerSizes = sizes_of(decoder.config)
    products = (getattr(sizes, field.name) for field in fields(sizes))
    each = [f"{p.inputs}x{p.outputs}{' pairs' if p.in_pairs else ''}" for p in products]
    kind = str(decoder.fused_layers()[0].qkv.weight.dtype)[6:]
    return f"{kind} {', '.join(each)}, {decoder.config.layers} layers"


def _keys(decoder: LlamaDecoder) -> tuple[str, str]:
    """Return the keys of the decoder's plans in this machine's own file and in the package's."""
    name, sizes = torch.cuda.get_device_name(decoder.embedding.weight.device), _named(decoder)
    own = f"{name}; torch {torch.__version__}; triton {triton.__version__}; {sizes}"
    return own, f"{name}; {sizes}"
