"""What a probe says: a finding with its line and its cost, or an abstention with what settles it.

Plain values and no torch. `catalog` holds the words that every finding of one code shares; a probe
adds the fact, the place and the cost; `render` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """How a cost is known."""

    MEASURED = "measured"
    INFERRED = "inferred"


class Safety(StrEnum):
    """What a remedy may change besides the speed."""

    SAFE = "safe"
    CHANGES_NUMERICS = "changes-numerics"
    CHANGES_BEHAVIOUR = "changes-behaviour"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the watched program.

    Attributes:
        line, column: From 1; 0 where it is not known.
        code: The source of the line, stripped; empty where it cannot be read.
        stack: The calls that led there, outermost first, each as "path:line function".
    """

    path: str
    line: int
    column: int = 0
    function: str = ""
    code: str = ""
    stack: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.path.replace("\\", "/").rsplit("/", 1)[-1]
        where = f"{name}:{self.line}"
        return f"{where} `{self.code}`" if self.code else where


@dataclass(frozen=True, slots=True)
class Cost:
    """What a finding costs in one step.

    Attributes:
        us_per_step: None where only the share is known.
        share: Part of the step's time, 0 to 1; None where only the time is known.
        spread_us, median_us: Interquartile range and median of the times it is made of, each of one
            `each`, such as "wait"; None where it is not made of several that were timed.
        no_spread: Why there is none.
        kind: Measured on this run, or inferred from what was measured elsewhere.
        per: What one step is: "step", "token", "request", "call".
        steps: How many steps were seen; 0 where that says nothing.
        beside: It is more than a step is long, so that part of it lies beside the steps.
    """

    us_per_step: float | None
    share: float | None
    spread_us: float | None = None
    median_us: float | None = None
    each: str = ""
    no_spread: str = ""
    kind: Basis = Basis.MEASURED
    per: str = "step"
    steps: int = 0
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to try, and how safe it is."""

    what: str
    safety: Safety


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was seen and costs time or memory.

    Attributes:
        code, name: Of the catalogue, such as "OST101" and "host-sync-in-step".
        fact: What was seen, with its numbers, in one sentence.
        place: The line that does it; None where it is no line's doing.
        others: Further lines of the same finding, the dearest first.
        page: What `ostinato explain` takes to say more.
    """

    code: str
    name: str
    fact: str
    place: Place | None
    cost: Cost | None
    why: str
    remedies: tuple[Remedy, ...]
    false_alarms: str
    page: str
    others: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Abstention:
    """A question that the evidence is too thin to answer.

    Attributes:
        why: What is missing, as a fact.
        settles_it: What to run or to record so that it can be answered.
    """

    code: str
    name: str
    why: str
    settles_it: str
