"""Which calls of a step one kernel stands for, and when it is launched.

A launch takes the place of the last of its calls. Until then the others have been answered with
memory that nobody has filled: so nothing else may look at it before, and nothing may write what the
launch is still to read. What does not keep to that is left out here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from ostinato.hf.fusing.stream import Stream, Value


class Kind(Enum):
    """What is fused; the value is the word that reports use."""

    NORM = "norm"
    ROTARY = "rotary"
    GATE = "gate"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor comes by: an argument of a call, or what it returned.

    Attributes:
        op: Number of the call.
        arg: Position of the argument; None for the result.
    """

    op: int
    arg: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel in place of several calls.

    Attributes:
        kernel: Its name in `kernels`.
        members: The calls, ascending.
        takes: What it reads, by the kernel's names.
        fills: Results of members that it makes whole.
        updates: What it changes in place, at one column.
        numbers: Plain numbers that it needs.
    """

    kernel: str
    members: tuple[int, ...]
    takes: Mapping[str, Slot]
    fills: Mapping[str, Slot]
    updates: Mapping[str, Slot] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def at(self) -> int:
        """The call in whose place it is launched."""
        return self.members[-1]


@dataclass(frozen=True, slots=True)
class Match:
    """One place where a pattern was found: all of its launches, or none."""

    kind: Kind
    launches: tuple[Launch, ...]

    @property
    def members(self) -> frozenset[int]:
        """All calls that no longer run."""
        return frozenset(member for launch in self.launches for member in launch.members)


@dataclass(frozen=True)
class Plan:
    """What a fused run does instead of a plain one.

    Attributes:
        stream: What the plain run called.
        matches: What is fused.
    """

    stream: Stream
    matches: tuple[Match, ...]

    @cached_property
    def skipped(self) -> frozenset[int]:
        """Calls that are not made."""
        return frozenset(member for match in self.matches for member in match.members)

    @cached_property
    def launches(self) -> dict[int, tuple[Kind, Launch]]:
        """What is launched in the place of which call."""
        return {each.at: (match.kind, each) for match in self.matches for each in match.launches}

    @cached_property
    def needed(self) -> dict[int, tuple[int | None, ...]]:
        """For each call, which of its arguments or results a launch wants."""
        needed: dict[int, list[int | None]] = {}
        for _, launch in self.launches.values():
            for slot in (*launch.takes.values(), *launch.fills.values(), *launch.updates.values()):
                needed.setdefault(slot.op, []).append(slot.arg)
        return {op: tuple(dict.fromkeys(args)) for op, args in needed.items()}

    @cached_property
    def last_needed(self) -> dict[Slot, int]:
        """For each slot, the last launch that wants it."""
        last: dict[Slot, int] = {}
        for at, (_, launch) in sorted(self.launches.items()):
            for slot in (*launch.takes.values(), *launch.fills.values(), *launch.updates.values()):
                last[slot] = at
        return last

    @property
    def places(self) -> dict[str, int]:
        """How often each kind is fused."""
        return dict(Counter(str(match.kind) for match in self.matches))

    @property
    def calls_saved(self) -> int:
        """Calls that compute, less those that stand for them."""
        return len(self.skipped) - len(self.launches)

    def without(self, kind: Kind) -> Plan:
        """Return the plan less all of one kind."""
        return Plan(self.stream, tuple(each for each in self.matches if each.kind is not kind))


def settle_on(stream: Stream, found: Iterator[Match]) -> Plan:
    """Return the plan of all matches that may be fused, each call standing in one of them."""
    taken: set[int] = set()
    matches = []
    for match in found:
        if match.members.isdisjoint(taken) and is_sound(stream, match):
            taken |= match.members
            matches.append(match)
    return Plan(stream, tuple(matches))


def is_sound(stream: Stream, match: Match) -> bool:
    """Whether nobody can tell the launches of `match` from the calls that they stand for."""
    ops, members = stream.ops, match.members
    filled = {slot.op: launch.at for launch in match.launches for slot in launch.fills.values()}
    made = {region: index for index in members for region in ops[index].makes}
    gone = {region for region, index in made.items() if index not in filled}
    if gone & stream.kept:
        return False
    for index, op in enumerate(ops):
        if index in members or op.is_view:
            continue
        touched = op.reads | op.writes
        if touched & gone:
            return False
        if any(index < filled[made[region]] for region in touched & made.keys() - gone):
            return False
    return all(_is_undisturbed(stream, launch, members) for launch in match.launches)


def _is_undisturbed(stream: Stream, launch: Launch, members: frozenset[int]) -> bool:
    ops = stream.ops
    read = _regions(stream, launch.takes)
    written = _regions(stream, launch.updates)
    first = min(
        (slot.op for slot in (*launch.takes.values(), *launch.updates.values())), default=launch.at
    )
    for index in range(min(first, launch.members[0]), launch.at):
        op = ops[index]
        if index in members or op.is_view:
            continue
        if op.writes & (read | written) or op.reads & written:
            return False
    return True


def _regions(stream: Stream, slots: Mapping[str, Slot]) -> frozenset[int]:
    values = (
        stream.ops[slot.op].outs[0] if slot.arg is None else stream.ops[slot.op].args[slot.arg]
        for slot in slots.values()
    )
    return frozenset(value.region for value in values if isinstance(value, Value))
