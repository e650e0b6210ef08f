"""What `tune_decode.py` tries beyond the package's own candidates. Pure arithmetic, and lists.

*Deep* plans have every piece of their columns under way at once. A program takes the first piece of
the matrix before the wait for the kernel ahead, and the rest in a loop behind it, `stages - 1`
pieces ahead: with nine pieces and five stages it waits for memory twice. A narrow model's matrices
are small, so that all nine fit in shared memory; what is left is one wait.

*Wide* plans have programs of 128 and 256 tokens, which read the matrix once or twice where those of
64 tokens read it up to four times. The package's arithmetic is for programs of 64 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as every

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import Product
from ostinato.llm.models.plan_candidates import candidates, load_of

# Programs of attention on each processor, keys taken in at a time, warps, stages.
ATTENTION = (
    *((2, 64, 4, 5), (2, 64, 4, 3), (3, 64, 4, 4), (4, 32, 4, 4), (4, 64, 4, 3)),
    *((4, 32, 2, 5), (6, 32, 2, 5), (8, 32, 1, 4), (8, 32, 2, 3), (8, 16, 2, 4), (16, 16, 1, 4)),
    # A row's 192 keys or more as one piece: nothing is put together through memory.
    *((1, 256, 4, 2), (1, 128, 4, 3), (2, 128, 4, 2)),
)
# Where a few rows are attended by programs of their own: pieces of a row's keys, keys taken in at a
# time, warps.
FEW_ATTENTION = (
    (1, 256, 4),
    (1, 256, 8),
    (2, 128, 4),
    (2, 128, 2),
    (2, 256, 8),
    (4, 64, 2),
    (8, 32, 1),
)
FEW_ATTENDED = 32
# For more than 64 tokens, by product: outputs, columns taken at a time, warps, stages, parts of the
# columns, the most tokens of a program. They spill no register (Triton 3.6 for an H200).
_WIDE = {
    "gate_up": ((64, 64, 8, 3, 1, 256), (32, 64, 8, 3, 1, 256)),
    "down": ((64, 64, 8, 3, 2, 256), (64, 64, 8, 3, 4, 256)),
    "out": ((64, 64, 8, 3, 2, 256), (64, 128, 8, 3, 1, 128)),
    "qkv": ((32, 128, 8, 3, 1, 128),),
}
_NARROW, _PROCESSORS = 64, 132
_HOPELESS = 2
"""Times what the best takes by arithmetic, which is not that wrong."""
_SHARED = 227 * 1024
_NUMBER_BYTES = 2
# More pieces spill, and two wait but once in any case.
_FEWEST_PIECES, _MOST_PIECES = 3, 9
_MOST_DEEP = 4
# Bytes a microsecond into one processor; what a piece costs beside its bytes, three barriers and a
# row of products that follow each other; what parts cost that are put together through memory.
_INTO_ONE, _PIECE_US, _PARTS_US = 80e3, 0.08, 1.5


def deep(product: Product, tokens: int) -> Iterator[TilePlan]:
    """Yield plans that have all of their columns under way at once, likeliest first."""
    found = []
    for outputs, chunk, splits in every((16, 32, 64), (64, 128), (1, 2, 4)):
        pieces = -(-product.inputs // (chunk * splits))
        if not _FEWEST_PIECES <= pieces <= _MOST_PIECES:
            continue
        plan = TilePlan(outputs, chunk, 4, stages=pieces, splits=splits)
        rows = outputs * (2 if product.in_pairs else 1)
        wide = min(max(1 << (tokens - 1).bit_length(), 16), plan.tokens)
        piece = (rows + wide) * chunk * _NUMBER_BYTES
        programs = -(-product.outputs // outputs) * splits * -(-tokens // wide)
        at_once = _SHARED // (pieces * piece + 1024)
        if not plan.fits(product.inputs) or programs > _PROCESSORS * at_once:
            continue  # whoever comes in a second round waits for memory once more
        beside = -(-programs // _PROCESSORS)
        us = pieces * (piece * beside / _INTO_ONE + _PIECE_US) + (splits > 1) * _PARTS_US
        found.append((us, plan))
    yield from (plan for _, plan in sorted(found, key=lambda each: each[0])[:_MOST_DEEP])


def worth_a_trial(name: str, product: Product, tokens: int) -> list[FewPlan | TilePlan | None]:
    """Return what may compute a product of so many tokens; the library last.

    Args:
        name: Of the product in a layer.
    """
    if tokens == 1:
        return list(candidates(product, tokens))
    further = list(deep(product, tokens))
    found = list(candidates(product, tokens))
    if tokens <= _NARROW:
        return list(dict.fromkeys([*further, *found]))
    wide = [
        TilePlan(outputs, chunk, warps, stages, width, splits)
        for outputs, chunk, warps, stages, splits, width in _WIDE[name]
    ]
    tiles = [each for each in (*wide, *found) if isinstance(each, TilePlan)]
    us = {each: load_of(each, product, tokens, _PROCESSORS).us for each in tiles}
    # Registers of wide sums are past that arithmetic; they were compiled, and are let in.
    most_us = _HOPELESS * min(us.values())
    likely = [each for each in found if each not in us or us[each] <= most_us]
    fitting = [each for each in wide if each.fits(product.inputs)]
    return list(dict.fromkeys([*fitting, *further, *likely]))
