"""What a thing costs beside nothing, from blocks that took turns: a middle, and how sure it is.

A machine that is shared moves by tens of percent within seconds, far more than most costs. So the
blocks of a round mirror each other (`mirrored`), which cancels whatever drifts evenly through it;
each round gives one ratio; and the median of the rounds has an interval, by drawing rounds again
and again (bootstrap, percentiles). Whether a claim is borne out is a matter of the interval, and
not of the middle. Pure arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from statistics import fmean, median
from typing import TypeVar

Kind = TypeVar("Kind")

LEVEL = 0.95
_DRAWS = 1000
FEWEST = 6
"""Rounds below which an interval says nothing: drawn again, so few hide what they did not see."""


class Standing(StrEnum):
    """What an interval says of a claim that something is at most so much."""

    BORNE_OUT = "borne out"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and where it lies with a probability of `LEVEL`.

    Attributes:
        rounds: How many there were.
    """

    middle: float
    low: float
    high: float
    rounds: int

    @property
    def width(self) -> float:
        """From one end to the other."""
        return self.high - self.low

    def standing(self, most: float) -> Standing:
        """Say what becomes of the claim that the median is at most `most`."""
        if self.rounds < FEWEST or self.low <= most < self.high:
            return Standing.OPEN
        return Standing.BORNE_OUT if self.high <= most else Standing.REFUTED

    def rounds_to_settle(self, most: float) -> int | None:
        """Return how many rounds may settle the claim, were the middle the truth; None: never.

        An interval is half as wide after four times as many rounds.
        """
        apart = abs(self.middle - most)
        if apart == 0.0:
            return None
        reach = (self.high - self.middle) if self.middle < most else (self.middle - self.low)
        return max(FEWEST, ceil(self.rounds * (reach / apart) ** 2))

    def __str__(self) -> str:
        return f"{self.middle:+.2%} ({self.low:+.2%} to {self.high:+.2%}, {self.rounds} rounds)"


def mirrored(kinds: Sequence[Kind], number: int) -> list[Kind]:
    """Return the order of a round's blocks: each kind twice, as far from the middle as behind it.

    Args:
        number: Of the round: another kind begins in each.
    """
    turn = number % len(kinds)
    half = [*kinds[turn:], *kinds[:turn]]
    return [*half, *reversed(half)]


def beyond(of: Sequence[float], base: Sequence[float]) -> float:
    """Return what the blocks of a round took beyond those of the base, as a share of it."""
    return fmean(of) / fmean(base) - 1


def interval(values: Sequence[float]) -> Interval:
    """Return the median of at least one value, and its interval; the same for the same values."""
    chance = random.Random(0)
    middles = sorted(median(chance.choices(values, k=len(values))) for _ in range(_DRAWS))
    cut = (1 - LEVEL) / 2
    low, high = (middles[round(at * (_DRAWS - 1))] for at in (cut, 1 - cut))
    return Interval(median(values), low, high, len(values))


def narrowing(values: Sequence[float]) -> list[Interval]:
    """Return the interval after 6, 12, 24, … rounds, and after all."""
    counts = []
    count = FEWEST
    while count < len(values):
        counts.append(count)
        count *= 2
    return [interval(values[:count]) for count in (*counts, len(values))] if values else []
