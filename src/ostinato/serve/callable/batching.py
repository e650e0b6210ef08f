"""Which of the waiting requests run next, and until when to wait for more. Pure.

A batch is made of requests of one kind (equal sizes but for the rows). It runs when it is full, or
when the first of its requests has waited long enough for company. The smaller priority goes first,
then the earlier; a request that does not fit any more lets a smaller one pass, and leads the next
batch. `batcher.py` asks on every arrival and after every batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from ostinato.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """How requests are batched.

    Attributes:
        max_batch: The most rows of one run.
        max_delay_s: How long the first request of a batch waits for others; 0 runs at once.
        max_waiting: Requests that may wait; another one is refused.
        fill_to: Rows up to which requests share a run; None: `max_batch`. A request that has more
            by itself runs alone.

    Raises:
        UsageError: OST6059, a limit that cannot be.
    """

    max_batch: int = 32
    max_delay_s: float = 0.002
    max_waiting: int = 1024
    fill_to: int | None = None

    @property
    def full(self) -> int:
        """Rows with which a batch waits for no more."""
        return self.max_batch if self.fill_to is None else min(self.fill_to, self.max_batch)

    def __post_init__(self) -> None:
        for name, value, least in (
            ("max_batch", self.max_batch, 1),
            ("max_delay_s", self.max_delay_s, 0),
            ("max_waiting", self.max_waiting, 1),
        ):
            if not least <= value < float("inf"):
                raise UsageError(
                    f"{name} must be at least {least}, got {value}",
                    code="OST6059",
                    remedy="such as max_batch=32, max_delay_s=0.002 and max_waiting=1024",
                )


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request in the queue.

    Attributes:
        ticket: Its number, in order of arrival.
        kind: What it has in common with those it can run with.
        priority: The smaller, the sooner.
        deadline_s: When its answer is of no use any more.
    """

    ticket: int
    kind: Hashable
    rows: int
    arrived_s: float
    priority: int = 0
    deadline_s: float | None = None

    def is_late(self, now_s: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline_s is not None and self.deadline_s <= now_s


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    Attributes:
        run: Tickets of the next batch; empty: wait.
        late: Tickets whose deadline passed: they are answered with that, and never run.
        wake_s: When to ask again if nothing arrives; None: on the next arrival.
    """

    run: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    wake_s: float | None = None


def plan(waiting: Iterable[Waiting], limits: Limits, now_s: float) -> Plan:
    """Decide for a model that is idle."""
    late: list[int] = []
    groups: dict[Hashable, list[Waiting]] = {}
    for one in waiting:
        if one.is_late(now_s):
            late.append(one.ticket)
        else:
            groups.setdefault(one.kind, []).append(one)
    ripe = [group for group in groups.values() if _is_ripe(group, limits, now_s)]
    if ripe:
        batches = [_fill(group, limits.full) for group in ripe]
        best = min(batches, key=lambda batch: _order(batch[0]))
        return Plan(tuple(one.ticket for one in best), tuple(late))
    moments = [_first(group) + limits.max_delay_s for group in groups.values()]
    moments += [
        one.deadline_s for group in groups.values() for one in group if one.deadline_s is not None
    ]
    return Plan((), tuple(late), min(moments, default=None))


def _first(group: Sequence[Waiting]) -> float:
    return min(one.arrived_s for one in group)


def _is_ripe(group: Sequence[Waiting], limits: Limits, now_s: float) -> bool:
    is_full = sum(one.rows for one in group) >= limits.full
    return is_full or now_s >= _first(group) + limits.max_delay_s


def _order(one: Waiting) -> tuple[int, int]:
    return (one.priority, one.ticket)


def _fill(group: Sequence[Waiting], full: int) -> list[Waiting]:
    batch: list[Waiting] = []
    room = full
    for one in sorted(group, key=_order):
        if one.rows <= room or not batch:  # a lone one is let in: who came too large was refused
            batch.append(one)
            room -= one.rows
    return batch
