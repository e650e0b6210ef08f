"""How the products of a layer are computed, by the number of tokens.

Few tokens: rows of the matrix in registers. A batch: tensor cores by our own kernels. Many: the
library's product, with small kernels around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan

# Bytes that a thread loads at once, and threads of a warp.
_LOAD_BYTES, _LANES = 16, 32
_LOADS = 16
_SHORT = 1024
_CHUNK = 128
_PROGRAMS = 288
# Up to so many tokens our own kernels beat the library's; of codes, which it has no product of, up
# to more, and where its products are small, too.
_TOKENS, _TOKENS_OF_CODES, _MOST_TILED = 64, 128, 256


@dataclass(frozen=True, slots=True)
class Product:
    """One product of a layer.

    Attributes:
        inputs, outputs: Sizes of the matrix; of pairs of rows, the pairs.
        in_pairs: Whether two rows of the matrix belong together.
    """

    inputs: int
    outputs: int
    in_pairs: bool = False


@dataclass(frozen=True, slots=True)
class Apart:
    """By the library, and added to the residual by the norm that follows.

    That norm reads the residual in any case, and the library has other tiles for a product that is
    not added in its end. Where no norm of its own follows, the sum is a kernel more.
    """


Plan: TypeAlias = FewPlan | TilePlan | Apart | None


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """How each product of a layer is computed; None: by the library, which adds in its end."""

    qkv: Plan
    out: Plan
    gate_up: Plan
    down: Plan

    @property
    def description(self) -> str:
        """How its products are computed, in words."""
        names = {FewPlan: "in registers", TilePlan: "in tiles"}
        plans = (getattr(self, field.name) for field in fields(self))
        each = [names.get(type(plan), "by the library") for plan in plans]
        return " and ".join(dict.fromkeys(each))


LIBRARY = LayerPlan(None, None, None, None)


@dataclass(frozen=True, slots=True)
class LayerPlans:
    """Which plan serves how many tokens.

    Attributes:
        up_to: The most tokens of each plan but the last, ascending.
        measured: For how many tokens the fastest plan was looked for.
        origin: Where they come from, in words.
    """

    up_to: Sequence[int]
    plans: Sequence[LayerPlan]
    measured: Sequence[int] = ()
    origin: str = field(default="plans by rule", compare=False)

    def fit(self, tokens: int) -> LayerPlan:
        """Return the plan for so many tokens."""
        return self.plans[sum(tokens > most for most in self.up_to)]

    @property
    def description(self) -> str:
        """What serves how many tokens, in words."""
        ends = [*(f"up to {most} tokens" for most in self.up_to), "more"]
        kinds = [plan.description for plan in self.plans]
        served = "; ".join(f"{end}: {kind}" for end, kind in zip(ends, kinds, strict=True))
        return f"{self.origin}: {served}"


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """The products of a layer."""

    qkv: Product
    out: Product
    gate_up: Product
    down: Product


def plans_for(sizes: LayerSizes, *, is_quantised: bool = False) -> LayerPlans:
    """Return the plans of a layer that nobody has measured.

    Args:
        is_quantised: The library multiplies no codes: they become numbers first, which for 8B takes
            5.3 ms a prompt on an H200, and tiles take some 5 for each 64 tokens.
    """
    products = (sizes.qkv, sizes.out, sizes.gate_up, sizes.down)
    few = LayerPlan(*(few_plan(each, number_bytes=1 if is_quantised else 2) for each in products))
    tiled = LayerPlan(*map(tile_plan, products))
    most = _TOKENS_OF_CODES if is_quantised else _TOKENS
    if sizes.qkv.inputs <= _SHORT:
        most = _MOST_TILED
    return LayerPlans((1, most), (few, tiled, LIBRARY))


def few_plan(product: Product, *, number_bytes: int = 2) -> FewPlan:
    """Return the plan of a product of a few tokens: 8 to 16 loads a thread.

    Args:
        number_bytes: Of the matrix.
    """
    inputs = product.inputs
    even = inputs & -inputs  # the largest power of two that divides it
    if inputs <= _SHORT:
        return FewPlan(*(4, 64, 2) if product.in_pairs else (2, 64, 1), is_spread=True)
    warp = _LOAD_BYTES // number_bytes * _LANES  # numbers that it loads at once
    is_codes = number_bytes == 1
    warps = 4 if product.in_pairs or is_codes else 8
    if warp * 4 <= even < warp * warps:
        warps = 4
    most = warp * warps
    chunk = min(even, most) if even >= warp else most
    if is_codes:  # no thread may have another's columns
        chunk = chunk if inputs <= _LOADS * chunk else most
        warps, most = chunk // warp, chunk
    loads = -(-inputs // chunk) * chunk / most * (2 if product.in_pairs else 1)
    # More rows of codes to a program, for what it does with a token is spread over them.
    most_loads = _LOADS // 2 if product.in_pairs and not is_codes else _LOADS
    outputs = 1
    while outputs * 2 * loads <= most_loads:
        outputs *= 2
    return FewPlan(min(outputs, 8), chunk, warps)


def tile_plan(product: Product) -> TilePlan:
    """Return the plan of a product of a batch: tiles of 64 rows, by some 256 programs."""
    if product.inputs <= _SHORT:
        wide = product.in_pairs and product.outputs > _SHORT
        return TilePlan(32 if wide else 16, 64, 4, stages=5, is_patient=not wide)
    outputs = 32 if product.in_pairs else 64
    if product.outputs <= _SHORT:
        outputs = 16
    stages = 4 if outputs == 16 else 3
    plan = TilePlan(outputs, _CHUNK, 4, stages)
    for splits in (2, 4, 8):
        split = replace(plan, splits=splits)
        if _is_worth(split, product):
            plan = split
    return plan


def _is_worth(plan: TilePlan, product: Product) -> bool:
    """Return whether so many splits leave each enough to do, and are not too many."""
    programs = -(-product.outputs // plan.outputs) * plan.splits
    enough = product.inputs >= 2 * plan.splits * plan.chunk
    return enough and plan.fits(product.inputs) and programs <= _PROGRAMS
