"""Which plans of a product are worth a trial, by rough arithmetic; a trial decides.

What a trial costs is mostly compiling, so there are few. A batch's product reads its matrix once
and is over when its last program is: programs should fit on the device at once, or nearly fill
their last round, ask for enough bytes at a time, and neither read the tokens nor hand on sums too
often.

Four families, the likeliest of each:

- A part of the columns is one piece, on its way into registers before the wait for the kernel
  ahead.
- A loop goes over it, a few pieces ahead.
- All pieces are under way at once: the matrix before the wait and the tokens behind it, or, but for
  the first piece, both behind it. A narrow model's matrices are small enough, and what is left is
  one wait for memory where a loop waits for each of its rounds.
- A loop whose first pieces of the matrix are asked for before the wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as every

from ostinato.llm.kernels.tiled_rows import TilePlan, tokens_pad
from ostinato.llm.models.code_candidates import few_beside, wide_tiles
from ostinato.llm.models.fused_plans import Apart, Plan, Product, few_plan, tile_plan

_OUTPUTS, _CHUNKS, _SPLITS = (16, 32, 64), (64, 128, 256, 512, 1024), (1, 2, 3, 4, 6, 8)
_WARPS, _STAGES = (4, 8), (1, 3, 4, 5)
# Of a processor of an H200, and of a number of the matrix.
_SHARED, _REGISTERS, _THREADS = 227 * 1024, 65536, 2048
_NUMBER_BYTES = 2
# Registers of a thread: what its first pieces may take, without a loop and before one; what its
# sums may; what it needs besides. More is spilt: Triton 3.6 for an H200, by the compiler's report.
_WHOLE, _PIECE, _SUMS, _REST = 128, 96, 96, 72
# Bytes a microsecond: memory, and what is in its cache; bytes under way that keep memory busy.
_MEMORY, _CACHE, _ENOUGH = 4.5e6, 6e6, 34e3
_ROUND_US, _SPLIT_US = 0.5, 1.0
# Bytes a microsecond into one processor.
_INTO_ONE = 80e3
# Pieces that are under way at once: two wait but once in any case, and more than nine spill.
_FEWEST, _MOST = 3, 9
# Registers of a thread for the tokens of all pieces.
_TOKENS = 128
# Pieces of the matrix that are asked for before the wait, where a loop follows, and how many stages
# of the loop give their room for them.
_SOME = ((2, 0), (3, 1))
_EACH = 2
_HOPELESS = 2
"""Times what the best takes by arithmetic, which is not that wrong."""
_NARROW = 64
"""Up to so many tokens nobody asks whether the library is faster when it does not add."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a plan asks of a device, roughly.

    Attributes:
        programs: How many there are.
        at_once: How many a processor holds at a time; 0: a program does not fit.
        shared: Bytes of shared memory of a program.
        is_whole: Whether a program takes its columns as one piece.
        us: How long it may take; infinite if it does not fit, or spills registers.
    """

    programs: int
    at_once: int
    shared: int
    is_whole: bool
    us: float


def load_of(plan: TilePlan, product: Product, tokens: int, processors: int) -> Load:
    """Return what a plan of a product of so many tokens asks of a device."""
    rows = plan.outputs * (2 if product.in_pairs else 1)
    wide = tokens_pad(tokens, plan)
    stacks = -(-tokens // wide)
    part = -(-product.inputs // (plan.chunk * plan.splits)) * plan.chunk
    is_whole = part <= plan.chunk
    piece, beside = (each * plan.chunk * _NUMBER_BYTES for each in (rows, wide))
    threads = 32 * plan.warps
    shared = shared_bytes(plan, product, tokens)
    in_piece, in_sums = (piece + beside) // 4 // threads, rows * wide // threads
    registers = min(in_piece + in_sums + _REST, 255)
    at_once = min(
        _SHARED // (shared + 1024), _THREADS // threads, _REGISTERS // (threads * registers)
    )
    programs = -(-product.outputs // plan.outputs) * plan.splits * stacks
    if at_once == 0 or in_piece > (_WHOLE if is_whole else _PIECE) or in_sums > _SUMS:
        return Load(programs, at_once, shared, is_whole, float("inf"))
    rounds = -(-programs // (processors * at_once))
    # In one round programs share the memory, so that one more or less somewhere matters half.
    fullest = -(-programs // processors)
    even = programs / (rounds * processors * at_once)
    if rounds == 1:
        even = (1 + programs / (processors * fullest)) / 2
    asked = min(at_once, programs / processors) * piece * plan.stages
    matrix = product.inputs * product.outputs * _NUMBER_BYTES * (2 if product.in_pairs else 1)
    us = matrix / (_MEMORY * min(1.0, asked / _ENOUGH)) / even
    us += programs * wide * part * _NUMBER_BYTES / _CACHE / 2 + (stacks - 1) * matrix / _CACHE
    us += rounds * _ROUND_US
    if plan.splits > 1:
        us += _SPLIT_US + programs * rows * wide * 8 / _CACHE
    return Load(programs, at_once, shared, is_whole, us)


def shared_bytes(plan: TilePlan, product: Product, tokens: int) -> int:
    """Return the shared memory of a program."""
    wide = tokens_pad(tokens, plan)
    rows = plan.outputs * (2 if product.in_pairs else 1)
    pieces = -(-product.inputs // (plan.chunk * plan.splits))
    stages = plan.stages if plan.ahead == 1 or pieces > plan.ahead else 0
    # One piece ahead stays in registers. Several are put down, their tokens where the loop's were.
    ahead = plan.ahead if plan.ahead > 1 else 0
    columns = ahead * rows + max(stages * (rows + wide), ahead * wide)
    return columns * plan.chunk * _NUMBER_BYTES


def candidates(
    product: Product, tokens: int, processors: int = 132, *, number_bytes: int = 2
) -> Iterator[Plan]:
    """Yield the plans that are worth a trial for a product of so many tokens, the library last.

    Args:
        number_bytes: Of the matrix.
    """
    is_codes = number_bytes == 1
    if tokens <= 2:
        few = few_plan(product, number_bytes=number_bytes)
        yield few
        if is_codes:
            yield from few_beside(few)
    rule = tile_plan(product)
    yield rule
    if tokens == 1:
        return
    yield replace(rule, is_patient=not rule.is_patient)
    yield from at_once(product, tokens, processors, number_bytes=number_bytes)
    if is_codes:
        yield from wide_tiles(product, tokens)
    else:
        yield from _some_ahead(rule, product, tokens, processors)
    best: dict[tuple[bool, int], tuple[float, TilePlan]] = {}
    for plan in _every(product):
        load = load_of(plan, product, tokens, processors)
        kind = (load.is_whole, plan.outputs)
        if load.us < best.get(kind, (float("inf"), plan))[0]:
            best[kind] = load.us, plan
    most_us = _HOPELESS * min((us for us, _ in best.values()), default=0.0)
    for is_whole in (True, False):
        of_kind = sorted(
            (timed for (whole, _), timed in best.items() if whole is is_whole),
            key=lambda timed: timed[0],
        )
        yield from (plan for us, plan in of_kind[:_EACH] if plan != rule and us <= most_us)
    if tokens > _NARROW and not product.in_pairs:
        yield Apart()
    yield None


def at_once(
    product: Product, tokens: int, processors: int = 132, *, number_bytes: int = 2
) -> Iterator[TilePlan]:
    """Yield plans that have all of their columns under way at once, likeliest first.

    Of each cut the one whose matrix is asked for before the wait, and the one of a loop. Codes are
    asked for by a loop alone: without one the compiler deals a piece out between threads before it
    asks for the next.
    """
    best: dict[int, tuple[float, TilePlan]] = {}
    for outputs, splits in every(_OUTPUTS, (1, 2, 4)):
        chunk = 128 if product.inputs % (128 * splits) == 0 else 64
        pieces = -(-product.inputs // (chunk * splits))
        plan = TilePlan(outputs, chunk, 4, 1, splits=splits, is_patient=False, ahead=pieces)
        if not _FEWEST <= pieces <= _MOST or not plan.fits(product.inputs):
            continue
        wide = tokens_pad(tokens, plan)
        programs = -(-product.outputs // outputs) * splits * -(-tokens // wide)
        if programs > processors * (_SHARED // (shared_bytes(plan, product, tokens) + 1024)):
            continue  # whoever comes in a second round waits for memory once more
        rows = outputs * (2 if product.in_pairs else 1)
        beside = -(-programs // processors)
        us = pieces * chunk * (rows + wide) * _NUMBER_BYTES * beside / _INTO_ONE
        us += _SPLIT_US if splits > 1 else 0
        if us < best.get(outputs, (float("inf"), plan))[0]:
            best[outputs] = us, plan
    for _, plan in sorted(best.values(), key=lambda timed: timed[0])[:_EACH]:
        numbers = tokens_pad(tokens, plan) * plan.chunk * plan.ahead
        is_crowded = numbers // 2 // (32 * plan.warps) > _TOKENS
        if number_bytes > 1:
            yield replace(plan, warps=8) if is_crowded else plan
        yield replace(plan, stages=plan.ahead, is_patient=True, ahead=1)


def _some_ahead(
    rule: TilePlan, product: Product, tokens: int, processors: int
) -> Iterator[TilePlan]:
    pieces = -(-product.inputs // (rule.chunk * rule.splits))
    for ahead, fewer in _SOME:
        plan = replace(rule, ahead=ahead, stages=rule.stages - fewer)
        fits = plan.fits(product.inputs) and load_of(plan, product, tokens, processors).at_once
        # Fewer can be under way all at once.
        if fits and pieces > _MOST:
            yield plan


def _every(product: Product) -> Iterator[TilePlan]:
    for outputs, chunk, splits, warps, stages in every(_OUTPUTS, _CHUNKS, _SPLITS, _WARPS, _STAGES):
        plan = TilePlan(outputs, chunk, warps, stages, splits=splits)
        # Stages are copies of a loop; a whole part has none.
        is_whole = product.inputs <= chunk * splits
        if plan.fits(product.inputs) and is_whole is (stages == 1):
            yield plan
