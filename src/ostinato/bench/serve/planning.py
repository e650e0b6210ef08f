"""Who asks for what, and when: loads as a benchmark offers them, and their share for each client.

Closed loop: so many streams, each with its next request as soon as the last one ended; a trace that
is offered so loads the server fully, whatever it can do. Open loop: requests come when they come,
whether the server keeps up or not, at random or as in a trace. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from ostinato.errors import UsageError


class Kind(StrEnum):
    """How requests follow each other."""

    CLOSED = "closed"
    POISSON = "poisson"
    TRACE = "trace"
    FULL = "full"


_FULL_STREAMS = 256


@dataclass(frozen=True, slots=True)
class Level:
    """One load that is measured.

    Attributes:
        size: Streams of a closed loop, or of a trace as fast as it is taken; requests per second;
            or how much faster than in the trace.
    """

    kind: Kind
    size: float

    @property
    def streams(self) -> int | None:
        """Requests that live together; None where they come when they come."""
        return int(self.size) if self.kind in (Kind.CLOSED, Kind.FULL) else None

    @property
    def is_trace(self) -> bool:
        """Whether the lengths of its requests are a trace's."""
        return self.kind in (Kind.TRACE, Kind.FULL)

    def __str__(self) -> str:
        match self.kind:
            case Kind.CLOSED:
                return f"{self.size:g} stream{'s' * (self.size != 1)}"
            case Kind.POISSON:
                return f"{self.size:g} requests/s"
            case Kind.TRACE:
                return f"trace x{self.size:g}"
            case Kind.FULL:
                return f"trace, full, {self.size:g} streams"


def read_levels(streams: str, rates: str, speeds: str) -> tuple[Level, ...]:
    """Return the loads that a command line names; without any, one stream and 64.

    Raises:
        UsageError: OST4021, something is no number above 0.
    """
    found = []
    for kind, text in ((Kind.CLOSED, streams), (Kind.POISSON, rates), (Kind.TRACE, speeds)):
        for word in filter(None, (part.strip() for part in text.split(","))):
            if kind is Kind.TRACE and word == "full":
                found.append(Level(Kind.FULL, _FULL_STREAMS))
                continue
            try:
                size = float(word)
            except ValueError:
                size = 0.0
            if not 0 < size < float("inf") or (kind is Kind.CLOSED and size != int(size)):
                raise UsageError(
                    f"a load must be a number above 0, got {word!r}",
                    code="OST4021",
                    remedy="pass --streams 1,64, --rates 2.5,10 or --speeds 1,4,full",
                )
            found.append(Level(kind, size))
    return tuple(found) or (Level(Kind.CLOSED, 1), Level(Kind.CLOSED, 64))


class Planned(msgspec.Struct, frozen=True, array_like=True):
    """One request.

    Attributes:
        prompt: Token ids.
        new: Tokens to ask for.
        at_s: When it is sent, from the beginning; None: when its stream is free.
        is_counted: False while the load is still rising.
        cancel_after: Frames after which the client goes away; None: it stays.
    """

    prompt: list[int]
    new: int
    at_s: float | None = None
    is_counted: bool = True
    cancel_after: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What the requests of a load are like.

    Attributes:
        vocabulary: Token ids are drawn below it.
        cancelled: The share of requests whose client goes away half-way.
    """

    prompt: int = 128
    new: int = 128
    vocabulary: int = 1000
    cancelled: float = 0.0

    def __post_init__(self) -> None:
        if self.vocabulary <= _FIRST_ID or not 0 <= self.cancelled <= 1:
            raise UsageError(
                f"vocabulary must be above {_FIRST_ID} and cancelled a share, got "
                f"{self.vocabulary} and {self.cancelled}",
                code="OST4021",
                remedy="pass the size of the model's vocabulary, and a share from 0 to 1",
            )


_FIRST_ID = 10  # below lie the tokens that end an answer


def closed_loop(streams: int, each: int, shape: Shape, seed: int = 0) -> list[list[Planned]]:
    """Return the requests of every stream, one behind the other."""
    chance = random.Random(seed)
    return [[_drawn(shape, chance) for _ in range(each)] for _ in range(streams)]


def poisson(
    per_s: float, seconds: float, shape: Shape, *, rising_s: float = 0.0, seed: int = 0
) -> list[Planned]:
    """Return requests that come at random, `per_s` of them a second on average."""
    chance = random.Random(seed)
    found = []
    now = chance.expovariate(per_s)
    while now < rising_s + seconds:
        found.append(_drawn(shape, chance, now, is_counted=now >= rising_s))
        now += chance.expovariate(per_s)
    return found


def as_in_trace(
    arrivals: Sequence[tuple[float, int, int]],
    speed: float,
    shape: Shape,
    *,
    rising_s: float = 0.0,
    seed: int = 0,
) -> list[Planned]:
    """Return a trace's requests, `speed` times as fast as they came.

    Args:
        arrivals: Second, prompt tokens and new tokens of each.
        rising_s: So many seconds at the beginning are sent and not counted.
    """
    chance = random.Random(seed)
    return [
        _drawn(
            Shape(prompt, new, shape.vocabulary, shape.cancelled),
            chance,
            at_s / speed,
            is_counted=at_s / speed >= rising_s,
        )
        for at_s, prompt, new in arrivals
    ]


def as_fast_as_taken(
    arrivals: Sequence[tuple[float, int, int]], streams: int, shape: Shape, *, seed: int = 0
) -> list[list[Planned]]:
    """Return a trace's requests in its order, dealt to streams that each ask again at once."""
    planned = as_in_trace(arrivals, 1.0, shape, seed=seed)
    timeless = [msgspec.structs.replace(one, at_s=None) for one in planned]
    return [timeless[first::streams] for first in range(min(streams, len(timeless)))]


def _drawn(
    shape: Shape, chance: random.Random, at_s: float | None = None, *, is_counted: bool = True
) -> Planned:
    ids = [chance.randrange(_FIRST_ID, shape.vocabulary) for _ in range(shape.prompt)]
    goes = chance.random() < shape.cancelled
    after = chance.randrange(1, max(2, shape.new // 2)) if goes else None
    return Planned(ids, shape.new, at_s, is_counted, after)


def share_out(streams: Sequence[Sequence[Planned]], clients: int) -> list[list[Sequence[Planned]]]:
    """Deal streams (or, one by one, requests of an open loop) to client processes, evenly."""
    return [list(streams[first::clients]) for first in range(min(clients, len(streams)))]
