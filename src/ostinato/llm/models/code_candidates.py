"""Which plans of a product of codes are worth a trial, besides those of any matrix.

One token: what a program does with the token is spread over its rows, so more rows mean fewer
instructions for a code, and fewer programs and registers under way to hide a wait behind. Twice and
half the rows are tried, and half the columns at a time by half the warps.

More than 64 tokens: to make codes numbers costs more than to multiply them, and programs of 64
tokens each do it once for each 64. So there are programs of 128 tokens, of columns by 64, because
their sums take the registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ostinato.llm.kernels.tiled_rows import TilePlan

if TYPE_CHECKING:
    from ostinato.llm.kernels.few_rows import FewPlan
    from ostinato.llm.models.fused_plans import Product

NARROW = 64
"""Up to so many tokens programs of as many take them all."""
_WIDE, _COLUMNS, _STAGES = 128, 64, 4
_PROGRAMS = 264


def few_beside(rule: FewPlan) -> Iterator[FewPlan]:
    """Yield cuts of one token's product near the one by rule."""
    if rule.is_spread:
        return
    yield replace(rule, outputs=rule.outputs * 2)
    if rule.outputs > 1:
        yield replace(rule, outputs=rule.outputs // 2)
    if rule.warps > 1:
        yield replace(rule, chunk=rule.chunk // 2, warps=rule.warps // 2)


def wide_tiles(product: Product, tokens: int) -> Iterator[TilePlan]:
    """Yield tiles of up to 128 tokens, in one part and in as many as a device holds at once."""
    if tokens <= NARROW:
        return
    rows = 2 if product.in_pairs else 1
    for outputs, warps in ((64 // rows, 4), (128 // rows, 8)):
        plan = TilePlan(outputs, _COLUMNS, warps, _STAGES, tokens=_WIDE)
        if plan.fits(product.inputs):
            yield plan
        programs = -(-product.outputs // outputs) * -(-tokens // _WIDE)
        parts = [each for each in (2, 4, 8) if programs * each <= _PROGRAMS]
        split = replace(plan, splits=max(parts, default=1))
        if parts and split.fits(product.inputs):
            yield split
