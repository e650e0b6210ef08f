"""Which plan computes a decoder's layers fastest: measured in whole steps, once, and kept.

A product that is fast alone may be slow in a step, where its programs begin while those of the one
ahead still run. So all layers are recorded and replayed for every candidate, on the model's own
weights. Candidates are few: the plans that a layer of these sizes has by rule, some near them, and
the library. One that gives other numbers than the library does is no candidate.

An engine reads what was found out before and never waits for a measurement: that takes minutes,
most of them compiling, with the GPU for itself. `ostinato bench plans` makes it.

Shapes: N tokens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, cast

import torch
import triton

from ostinato.graphs import graphed
from ostinato.llm.attention.base import AttentionBackend, DecodeAttend
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.kv.store import KvStore
from ostinato.llm.models.fused import Fused, sizes_of
from ostinato.llm.models.fused_plans import (
    LIBRARY,
    LayerPlan,
    LayerPlans,
    LayerSizes,
)
from ostinato.llm.models.plan_candidates import candidates
from ostinato.llm.models.plan_choice import ORDER, fastest, merged
from ostinato.llm.models.plan_file import PACKAGED, keep_plans, own_file, read_plans
from ostinato.measure import Spread, wait_for

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.graphs import Lease
    from ostinato.llm.models.llama import LlamaDecoder

_log = logging.getLogger(__name__)
TOKENS = (1, 32, 256, 8, 128, 64, 16, 2, 4)
"""Numbers of tokens that are measured, first what is asked for most: time may run out."""
_CACHED, _PAGE_TOKENS = 192, 16
_APART = 0.02
"""So far from the library's numbers after one layer a plan is wrong; what rounding does is half of
it. Every layer rounds anew, so distances grow as the square root of the layers: 32 random ones in
bfloat16 lie 0.04 from the same in float32, one lies 0.0076."""


def known(decoder: LlamaDecoder) -> LayerPlans | None:
    """Return the plans that were measured for layers of such sizes on such a GPU, if any were."""
    own, packaged = _keys(decoder)
    for file, key, origin in (
        (own_file(), own, "plans measured on this machine"),
        (PACKAGED, packaged, "plans measured for this GPU"),
    ):
        found = read_plans(file, key)
        if found is None:
            continue
        if _fit(found, sizes_of(decoder.config)):
            return replace(found, origin=origin)
        _log.warning("the plans in %s are for other layers and are not used: %s", file, key)
    return None


def measure_and_keep(
    decoder: LlamaDecoder,
    backend: AttentionBackend,
    *,
    is_over: Callable[[], bool],
    tell: Callable[[str], None],
    again: bool = False,
    tokens: Sequence[int] = TOKENS,
    clock: Callable[[], float] = time.perf_counter,
) -> LayerPlans:
    """Return the fastest plans, kept for the engines to come on this machine as they are found.

    What was measured before stays, so a run that is cut short is gone on with by the next.

    Args:
        decoder: Its weights are in place, and it has fused layers.
        is_over: Whether nothing more may begin.
        tell: Is told what begins.
        again: Whether to measure what was measured before.
        tokens: Some of `TOKENS`.
        clock: Seconds.
    """
    assert decoder.fused is not None
    plans = known(decoder) or decoder.fused.plans
    if again:
        plans = replace(plans, measured=())
    bench = Bench(replace(decoder.fused, plans=plans), backend, clock)
    counts = sorted(TOKENS)
    with torch.inference_mode():
        for count in tokens:
            if count in plans.measured or is_over():
                continue
            tell(f"{count} tokens")
            best = bench.best(count, is_over)
            if best is not None:
                plans = merged({count: best}, counts, plans)
                keep_plans(own_file(), _keys(decoder)[0], plans)
    return replace(plans, origin="plans measured on this machine")


@dataclass(frozen=True, slots=True)
class Bench:
    """Steps of a decoder, timed.

    Attributes:
        fused: Whose plans are where the search begins.
        has_own_pages: Whether each row has keys and values of its own, as it has in an engine.
            Without them attention reads what is in the cache: less memory, and products decide.
        rounds, replays: How many times are taken, each of how many steps.
    """

    fused: Fused
    backend: AttentionBackend
    clock: Callable[[], float] = time.perf_counter
    has_own_pages: bool = False
    rounds: int = 5
    replays: int = 20

    def best(self, tokens: int, is_over: Callable[[], bool]) -> LayerPlan | None:
        """Return the fastest plan for so many tokens; None if time ran out before it was found."""
        sizes = sizes_of(self.fused.decoder.config)
        width = number_bytes_of(self.fused.decoder)
        trials = {
            name: tuple(candidates(getattr(sizes, name), tokens, number_bytes=width))
            for name in ORDER
        }
        expected_NE = self.expected(tokens)
        return fastest(
            self.fused.plans.fit(tokens),
            trials,
            lambda plan: self.time(plan, tokens, expected_NE),
            is_over,
        )

    def expected(self, tokens: int) -> Tensor:
        """Return what a step gives by the library's products."""
        step, _ = self.step(LIBRARY, tokens)
        return step().clone()

    def time(self, plan: LayerPlan, tokens: int, expected_NE: Tensor) -> Spread | None:
        """Return the time of a step; None where the plan does not fit the device, or is wrong.

        Args:
            expected_NE: What the step gives by other plans.
        """
        step, store = self.step(plan, tokens)
        try:
            with _recorded(step, store) as run:
                if not _is_near(run(), expected_NE, self.fused.decoder.config.layers):
                    return None
                return self._spread(run, store.keys.device)
        except triton.runtime.errors.OutOfResources:
            return None

    def step(self, plan: LayerPlan, tokens: int) -> tuple[Callable[[], Tensor], KvStore]:
        """Return a step by one plan, and the store that it writes to."""
        fused = replace(self.fused, plans=LayerPlans((), (plan,)))
        decoder = fused.decoder
        device, dtype = decoder.embedding.weight.device, decoder.embedding.weight.dtype
        config, each = decoder.config, _CACHED // _PAGE_TOKENS
        pages = each * (tokens if self.has_own_pages else 1)
        store = KvStore(
            config.layers, pages + 1, _PAGE_TOKENS, config.kv_heads, config.head_dim, dtype, device
        )
        # The same for every plan, for results are compared.
        generator = torch.Generator(device).manual_seed(0)
        for tensor in (store.keys, store.values):
            tensor.normal_(generator=generator)
        # All write to page 0, which no row reads.
        pages_XP = torch.arange(1, pages + 1, dtype=torch.int32, device=device).view(-1, each)
        pages_BP = pages_XP.expand(tokens, -1).contiguous()
        lengths_B = torch.full((tokens,), _CACHED, dtype=torch.int32, device=device)
        zeros_B = torch.zeros(tokens, dtype=torch.int64, device=device)
        attend = DecodeAttend(self.backend, store, pages_BP, lengths_B)
        return lambda: fused.run(zeros_B, zeros_B, zeros_B, attend), store

    def _spread(self, run: Callable[[], object], device: torch.device) -> Spread:
        times_us = []
        for _ in range(self.rounds):
            wait_for(device)
            began = self.clock()
            for _ in range(self.replays):
                run()
            wait_for(device)
            times_us.append((self.clock() - began) / self.replays * 1e6)
        return Spread.of(times_us)


@contextmanager
def _recorded(step: Callable[[], Tensor], store: KvStore) -> Iterator[Callable[[], Tensor]]:
    """Give what replays a step; without a GPU there is nothing to record."""
    if store.keys.device.type != "cuda":
        yield step
        return
    with graphed(
        step,
        admit_after=1,
        warmups=1,
        outputs="leased",
        on_unfit="raise",
        scratch=(store.keys, store.values),
    ) as runner:
        yield lambda: cast("Lease[Tensor]", runner()).get()


def _is_near(found_NE: Tensor, expected_NE: Tensor, layers: int) -> bool:
    distance = (found_NE.float() - expected_NE.float()).norm()
    return bool(distance <= _APART * layers**0.5 * expected_NE.float().norm())


def _fit(plans: LayerPlans, sizes: LayerSizes) -> bool:
    """Return whether every product has enough columns for its parts."""
    for plan in plans.plans:
        for field in fields(plan):
            each, product = getattr(plan, field.name), getattr(sizes, field.name)
            if isinstance(each, TilePlan) and not each.fits(product.inputs):
                return False
    return True


def number_bytes_of(decoder: LlamaDecoder) -> int:
    """Return the bytes of a number of its layers' matrices."""
    return decoder.fused_layers()[0].qkv.weight.dtype.itemsize


def key_of(decoder: LlamaDecoder, layers: int) -> str:
    """Return the key of plans in the package's file, for a model with so many such layers."""
    device, sizes = decoder.embedding.weight.device, sizes_of(decoder.config)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    products = (getattr(sizes, field.name) for field in fields(sizes))
    each = [f"{p.inputs}x{p.outputs}{' pairs' if p.in_pairs else ''}" for p in products]
    kind = str(decoder.fused_layers()[0].qkv.weight.dtype)[6:]
    return f"{name}; {kind} {', '.join(each)}, {layers} layers"


def _keys(decoder: LlamaDecoder) -> tuple[str, str]:
    """Return the keys of the decoder's plans in this machine's own file and in the package's."""
    packaged = key_of(decoder, decoder.config.layers)
    driver = _driver(decoder.embedding.weight.device)
    versions = f"driver {driver}; torch {torch.__version__}; triton {triton.__version__}"
    return f"{versions}; {packaged}", packaged


def _driver(device: torch.device) -> str | None:
    try:
        from ostinato.device import describe

        chip = describe(device).accelerator
    except ModuleNotFoundError:  # run from a checkout where not every dependency is installed
        return None
    return None if chip is None else chip.driver
