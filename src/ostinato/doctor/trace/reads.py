"""Which call of torch a wait of the host belongs to, and so what it means. Pure.

The driver's call says that the host waited, the call of torch round it says why: to read a number,
to learn a shape, to copy. A wait that lies in none of them was asked for by name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ostinato.doctor.activity import WaitKind
from ostinato.doctor.trace.calls import ALWAYS_READS, READS, plain
from ostinato.doctor.trace.timeline import WaitSeen

_COPIES = {"d2h": (WaitKind.EXPORT, "a copy to the host"), "h2d": (WaitKind.UPLOAD, "an upload")}


@dataclass(frozen=True, slots=True)
class Mark:
    """A call of torch inside which a wait has a meaning."""

    thread: str
    at_us: float
    us: float
    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    """A call of the driver in which the host waited."""

    thread: str
    at_us: float
    us: float
    name: str


@dataclass(frozen=True, slots=True)
class CopyCall:
    """A call that starts a copy; the copy itself has the same correlation."""

    thread: str
    at_us: float
    correlation: int


@dataclass(slots=True)
class Candidate:
    """A wait, or on a CPU a read that would wait on a GPU.

    Attributes:
        copy: The correlation of the copy that it waits for, if it does.
    """

    seen: WaitSeen
    mark: str
    copy: int | None


def waits_of(
    marks: Sequence[Mark], syncs: Sequence[Sync], copies: Sequence[CopyCall]
) -> list[Candidate]:
    """Return every synchronising call with what it is for, and every read that has none."""
    found: list[Candidate] = []
    tops = _outermost(marks)
    calls = _by_thread(copies)
    waited: set[tuple[str, float]] = set()
    for sync in syncs:
        mark = _enclosing(tops.get(sync.thread, []), sync.at_us)
        if mark is None:
            seen = WaitSeen(
                sync.thread, sync.at_us, sync.us, WaitKind.SYNCHRONIZE, plain(sync.name)
            )
            found.append(Candidate(seen, "", None))
            continue
        waited.add((mark.thread, mark.at_us))
        kind, op = READS[mark.name]
        copy = _last_copy(calls.get(sync.thread, []), mark.at_us, sync.at_us)
        seen = WaitSeen(sync.thread, sync.at_us, sync.us, kind, op)
        found.append(Candidate(seen, mark.name, copy))
    return found + _silent(marks, tops, waited)


def _silent(
    marks: Sequence[Mark], tops: dict[str, list[Mark]], waited: set[tuple[str, float]]
) -> list[Candidate]:
    """Return the reads in which no call of the driver waited, as on a CPU."""
    found = []
    reads = _outermost([mark for mark in marks if mark.name in ALWAYS_READS])
    for read in (read for of_thread in reads.values() for read in of_thread):
        # The outer call is what the user wrote: an index by a mask calls nonzero.
        outer = _enclosing(tops[read.thread], read.at_us) or read
        if (outer.thread, outer.at_us) not in waited:
            kind, op = READS[outer.name]
            seen = WaitSeen(read.thread, read.at_us, 0.0, kind, op)
            found.append(Candidate(seen, outer.name, None))
    return found


def kept(
    candidates: Sequence[Candidate], directions: Mapping[int, str], has_device: bool
) -> list[WaitSeen]:
    """Return the waits proper: beside a GPU those that waited, else those that would have."""
    return list(_kept(candidates, directions, has_device))


def _kept(
    candidates: Sequence[Candidate], directions: Mapping[int, str], has_device: bool
) -> Iterator[WaitSeen]:
    for each in candidates:
        if each.mark in ("aten::copy_", "aten::_to_copy") and each.copy is not None:
            known = _COPIES.get(directions.get(each.copy, ""))
            if known is not None:
                each.seen.kind, each.seen.op = known
        if not has_device or each.seen.us:
            yield each.seen


def _outermost(marks: Sequence[Mark]) -> dict[str, list[Mark]]:
    """Drop the marks inside another one: item() calls another call that is marked as well."""
    tops: dict[str, list[Mark]] = {}
    for mark in sorted(marks, key=lambda mark: (mark.thread, mark.at_us, -mark.us)):
        known = tops.setdefault(mark.thread, [])
        if not known or mark.at_us >= known[-1].at_us + known[-1].us:
            known.append(mark)
    return tops


def _enclosing(marks: list[Mark], at_us: float) -> Mark | None:
    index = bisect_right(marks, at_us, key=lambda mark: mark.at_us) - 1
    if index < 0 or at_us > marks[index].at_us + marks[index].us:
        return None
    return marks[index]


def _by_thread(copies: Sequence[CopyCall]) -> dict[str, list[CopyCall]]:
    found: dict[str, list[CopyCall]] = {}
    for copy in sorted(copies, key=lambda copy: copy.at_us):
        found.setdefault(copy.thread, []).append(copy)
    return found


def _last_copy(copies: list[CopyCall], begin: float, end: float) -> int | None:
    index = bisect_right(copies, end, key=lambda copy: copy.at_us) - 1
    return copies[index].correlation if index >= 0 and copies[index].at_us >= begin else None
