"""Decide where every tensor of a recorded run lives, and which calls a replay still has to make.

Most calls can write into memory that is given to them. That memory is planned once: one arena in
which regions whose lives do not overlap share bytes. At a fixed address every view is a constant,
so that a replay makes no views and allocates next to nothing. What cannot be placed is made anew by
each replay and dropped after its last use.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch._ops import OpOverload

from ostinato.graphs.aten_calls import changes_window, draws
from ostinato.graphs.backends.tape_arena import ALIGNMENT
from ostinato.graphs.backends.tape_program import Call, Origin, Program, Region
from ostinato.graphs.backends.tape_trial import Trials
from ostinato.graphs.backends.tape_variants import (
    is_plain_copy,
    is_zeros,
    leaves_memory_as_it_is,
    out_variant,
)


class Place(Enum):
    """Where a region lives during replays."""

    FIXED = "fixed"  # on the memory it had while it was recorded
    ARENA = "arena"
    FRESH = "fresh"  # made by every replay


class Making(Enum):
    """How a call fills the memory given to it."""

    NOTHING = "nothing"
    ZERO = "zero"
    COPY = "copy"
    OUT = "out"


@dataclass(slots=True)
class Plan:
    """What a replay does.

    Attributes:
        calls: Indices of the calls to make, in order; hoisted views and constants are not in it.
        filling: Indices of the calls that can fill all they return in place.
        places: For each region.
        starts: Byte offset in the arena of each region placed there.
        arena_bytes: Size of the arena.
        fresh_bytes: Most memory that regions made by a replay hold at one time.
        last_use: Index of the last call that uses each value.
    """

    calls: list[int]
    filling: frozenset[int]
    places: list[Place]
    starts: dict[int, int]
    arena_bytes: int
    fresh_bytes: int
    last_use: dict[int, int]


def making(func: OpOverload) -> Making | None:
    """Return how `func` fills given memory without an extra copy, or None if it cannot."""
    if leaves_memory_as_it_is(func):
        return Making.NOTHING
    if is_zeros(func):
        return Making.ZERO
    if is_plain_copy(func):
        return Making.COPY
    return None if out_variant(func) is None else Making.OUT


def plan(program: Program) -> Plan:
    """Plan the replay of `program`; constants found on the way keep their recorded memory."""
    _settle_constants(program)
    needed = _needed_calls(program)
    trials = Trials(program)
    filling = frozenset(i for i in needed if _fills_given_memory(program, i, trials))
    places = [_place(region, filling) for region in program.regions]
    calls = [i for i in needed if not _is_hoisted(program, program.calls[i], places)]
    lives = _lives(program, needed)
    starts, arena_bytes = _pack(
        [
            (lives[index][0], lives[index][1], program.regions[index].nbytes, index)
            for index, place in enumerate(places)
            if place is Place.ARENA and index in lives
        ]
    )
    fresh = [
        (*lives[index], program.regions[index].nbytes)
        for index, place in enumerate(places)
        if place is Place.FRESH and index in lives
    ]
    last_use = {value: i for i in calls for value in _used(program.calls[i])}
    return Plan(calls, filling, places, starts, arena_bytes, _peak(fresh), last_use)


def _settle_constants(program: Program) -> None:
    for region in program.regions:
        if region.origin is Origin.MADE and region.is_pure and not region.is_kept:
            region.origin = Origin.CONSTANT
        elif region.origin is Origin.MADE and not region.is_kept:
            region.storage = None


def _used(call: Call) -> list[int]:
    return [*call.taken(), *(value for _, value in call.outs)]


def _needed_calls(program: Program) -> list[int]:
    """Calls whose effect can be seen: backwards from what outlives the run."""
    wanted = {
        index
        for index, region in enumerate(program.regions)
        if region.is_kept or region.origin is Origin.OUTSIDE
    }
    needed = []
    for index in range(len(program.calls) - 1, -1, -1):
        call = program.calls[index]
        made = {program.region_of(value) for _, value in call.outs}
        if made and all(program.regions[r].origin is Origin.CONSTANT for r in made):
            continue
        touched = made | {program.region_of(value) for value in call.written}
        has_other_effect = not call.outs or draws(call.func) or call.func.namespace != "aten"
        if has_other_effect or touched & wanted:
            needed.append(index)
            wanted.update(program.region_of(value) for value in _used(call))
    return needed[::-1]


def _place(region: Region, filling: frozenset[int]) -> Place:
    if region.origin is not Origin.MADE or region.is_kept:
        return Place.FIXED
    return Place.ARENA if region.maker in filling else Place.FRESH


def _fills_given_memory(program: Program, index: int, trials: Trials) -> bool:
    """Whether all that the call returns is new memory which it can fill in place."""
    call = program.calls[index]
    made = [program.region_of(value) for _, value in call.outs]
    is_whole = len(made) == len(set(made)) == len(call.func._schema.returns)
    if not is_whole or any(program.regions[region].maker != index for region in made):
        return False
    how = making(call.func)
    if how is Making.OUT and not draws(call.func):  # a trial must not move the random state
        return trials.fills_exactly(call)
    return how is not None


def _is_hoisted(program: Program, call: Call, places: list[Place]) -> bool:
    """Whether the call only makes views of memory at a fixed address."""
    if call.written and not changes_window(call.func):
        return False
    taken = {program.region_of(value) for value in call.taken()}
    made = {program.region_of(value) for _, value in call.outs}
    return bool(made) and made <= taken and all(places[r] is not Place.FRESH for r in made)


def _lives(program: Program, needed: list[int]) -> dict[int, tuple[int, int]]:
    """First and last call that uses each region."""
    lives: dict[int, tuple[int, int]] = {}
    for index in needed:
        for value in _used(program.calls[index]):
            region = program.region_of(value)
            lives[region] = (lives.get(region, (index, index))[0], index)
    return lives


def _pack(blocks: list[tuple[int, int, int, int]]) -> tuple[dict[int, int], int]:
    """Give each block (first, last, bytes, name) an offset; those that live together stay apart.

    Best fit in order of birth: the smallest gap between living blocks that is large enough.
    """
    starts: dict[int, int] = {}
    living: list[tuple[int, int, int]] = []  # start, end, last; ascending
    size = 0
    for first, last, nbytes, name in sorted(blocks):
        need = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        living = [block for block in living if block[2] >= first]
        start = _best_gap(living, need)
        starts[name] = start
        size = max(size, start + need)
        living.append((start, start + need, last))
        living.sort()
    return starts, size


def _best_gap(living: list[tuple[int, int, int]], need: int) -> int:
    best: tuple[int, int] | None = None
    cursor = 0
    for start, end, _ in living:
        gap = start - cursor
        if gap >= need and (best is None or gap < best[0]):
            best = (gap, cursor)
        cursor = max(cursor, end)
    return cursor if best is None else best[1]


def _peak(blocks: list[tuple[int, int, int]]) -> int:
    moments = sorted(
        [(first, nbytes) for first, _, nbytes in blocks]
        + [(last + 0.5, -nbytes) for _, last, nbytes in blocks]
    )
    peak = now = 0
    for _, change in moments:
        now += change
        peak = max(peak, now)
    return peak
