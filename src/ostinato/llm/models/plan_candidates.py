"""Which plans of a product are worth a trial, by rough arithmetic; a trial decides.

What a trial costs is mostly compiling, so there are few. A batch's product reads its matrix once
and is over when its last program is: programs should fit on the device at once, or nearly fill
their last round, ask for enough bytes at a time, and neither read the tokens nor hand on sums too
often.

Two families, and the best of each number of outputs in either: one takes its part of the columns as
a whole, so that all of the matrix is on its way into registers before the wait for the kernel
ahead; the other goes over them in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as every

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import Product, few_plan, tile_plan

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
_EACH = 2


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
    wide = min(max(1 << (tokens - 1).bit_length(), 16), plan.tokens)
    stacks = -(-tokens // wide)
    part = -(-product.inputs // (plan.chunk * plan.splits)) * plan.chunk
    is_whole = part <= plan.chunk
    piece, beside = (each * plan.chunk * _NUMBER_BYTES for each in (rows, wide))
    threads = 32 * plan.warps
    shared = plan.stages * (piece + beside)
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


def candidates(
    product: Product, tokens: int, processors: int = 132
) -> Iterator[FewPlan | TilePlan | None]:
    """Yield the plans that are worth a trial for a product of so many tokens, the library last."""
    if tokens <= 2:
        yield few_plan(product)
    rule = tile_plan(product)
    yield rule
    if tokens == 1:
        return
    yield replace(rule, is_patient=not rule.is_patient)
    best: dict[tuple[bool, int], tuple[float, TilePlan]] = {}
    for plan in _every(product):
        load = load_of(plan, product, tokens, processors)
        kind = (load.is_whole, plan.outputs)
        if load.us < best.get(kind, (float("inf"), plan))[0]:
            best[kind] = load.us, plan
    for is_whole in (True, False):
        of_kind = sorted(
            (timed for (whole, _), timed in best.items() if whole is is_whole),
            key=lambda timed: timed[0],
        )
        yield from (plan for _, plan in of_kind[:_EACH] if plan != rule)
    yield None


def _every(product: Product) -> Iterator[TilePlan]:
    for outputs, chunk, splits, warps, stages in every(_OUTPUTS, _CHUNKS, _SPLITS, _WARPS, _STAGES):
        plan = TilePlan(outputs, chunk, warps, stages, splits=splits)
        # Stages are copies of a loop; a whole part has none.
        is_whole = product.inputs <= chunk * splits
        if plan.fits(product.inputs) and is_whole is (stages == 1):
            yield plan
