"""What the host keeps of each row of the decode loop: enough never to have to ask the device.

How far rows have come is kept in arrays, and what they ask for is looked at only when somebody has
come or gone. So a launch costs the host a few operations, however many rows there are; one by one,
256 rows would take longer than a small model's step does on the device.

Shapes: B rows, R rows that are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.llm.resident_state import Ending
from ostinato.llm.sampling import Level

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Seat:
    """What a row is taken with.

    Attributes:
        cached: Tokens whose keys and values are stored.
        most: Tokens whose keys and values it can ever need.
        level: What it asks of sampling.
        logprobs: Likeliest tokens it wants reported; None for no report.
        is_bound: It has a grammar: a launch gives it one token if it was told what may come.
    """

    cached: int
    most: int
    level: Level
    logprobs: int | None
    is_bound: bool


@dataclass(frozen=True, slots=True)
class Company:
    """Those who sit in rows, until somebody comes or goes.

    Attributes:
        rows_R: Their rows, in ascending order.
        asked: Row -> likeliest tokens it wants reported; rows that want no report are not in it.
        level: What those without a grammar ask of sampling.
        reports: Whether one of those wants a report.
        is_free: Whether there are any without a grammar.
        left_B: How often each row had been left before they came together.
    """

    rows_R: Counts
    asked: dict[int, int]
    level: Level
    reports: bool
    is_free: bool
    left_B: Counts


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launch asks of its recording.

    Attributes:
        rows: Rows up to the last one that is taken.
        pages: Pages of the longest of them.
        level: What sampling must compute for those that run.
        with_logprobs: Whether log probabilities must be reported for one of those.
    """

    rows: int
    pages: int
    level: Level
    with_logprobs: bool


class Seats:
    """All rows; an empty one has no tokens and no pages, and runs no steps.

    Args:
        rows: How many there are.
        page_tokens: Tokens of a page.

    Attributes:
        cached_B: Tokens whose keys and values are stored, if the row ran all steps of the launches
            that have not been read yet.
        pages_B: Pages granted.
        room_B: Tokens whose keys and values those hold.
    """

    def __init__(self, rows: int, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._seats: dict[int, Seat] = {}
        self._company: Company | None = None
        self.cached_B, self._most_B, self.pages_B = np.zeros((3, rows), dtype=np.int64)
        self.room_B, self._is_free_B, self._left_B = np.zeros((3, rows), dtype=np.int64)

    def take(self, row: int, seat: Seat) -> None:
        """Seat a request in an empty row."""
        self._seats[row] = seat
        self.cached_B[row], self._most_B[row] = seat.cached, seat.most
        self._is_free_B[row] = not seat.is_bound
        self._company = None

    def grant(self, row: int, pages: int) -> None:
        """Note how many pages a row has."""
        self.pages_B[row], self.room_B[row] = pages, pages * self._page_tokens

    def leave(self, row: int) -> None:
        """Empty a row."""
        del self._seats[row]
        self.grant(row, 0)
        self.cached_B[row] = self._most_B[row] = self._is_free_B[row] = 0
        self._left_B[row] += 1
        self._company = None

    def __contains__(self, row: int) -> bool:
        return row in self._seats

    def __len__(self) -> int:
        return len(self._seats)

    def is_bound(self, row: int) -> bool:
        """Whether a row is taken and has a grammar."""
        return row in self._seats and self._seats[row].is_bound

    @property
    def company(self) -> Company:
        """Who sits there."""
        if self._company is None:
            rows = sorted(self._seats)
            free = [row for row in rows if not self._seats[row].is_bound]
            level, reports = self.ask(free)
            wishes = {row: self._seats[row].logprobs for row in rows}
            asked = {row: most for row, most in wishes.items() if most is not None}
            rows_R, left_B = np.array(rows, dtype=np.int64), self._left_B.copy()
            self._company = Company(rows_R, asked, level, reports, bool(free), left_B)
        return self._company

    def ask(self, rows: Iterable[int]) -> tuple[Level, bool]:
        """Return what some rows ask of sampling, and whether one wants a report."""
        seats = [self._seats[row] for row in rows]
        level = max((seat.level for seat in seats), default=Level.GREEDY)
        return level, any(seat.logprobs is not None for seat in seats)

    def shares(self, steps: int, told: Iterable[int]) -> Counts:
        """Return how many of `steps` steps each row runs, (B,).

        Args:
            told: Those with a grammar that run one; others with a grammar run none.
        """
        share_B = self._is_free_B * steps
        for row in told:
            share_B[row] = 1
        return share_B

    def tokens_after(self, share_B: Counts) -> Counts:
        """Return of how many tokens each row stores keys and values after so many more steps."""
        stored_B: Counts = np.minimum(self.cached_B + share_B, self._most_B)
        return stored_B

    def wanted(self, pages: int, told: Collection[int]) -> Wanted:
        """Return what a launch asks of its recording whose longest row needs `pages`.

        Args:
            told: As in `shares`.
        """
        company = self.company
        level, reports = company.level, company.reports
        if told:
            told_level, told_reports = self.ask(told)
            level, reports = max(level, told_level), reports or told_reports
        return Wanted(int(company.rows_R[-1]) + 1, max(1, pages), level, reports)

    def give(self, share_B: Counts) -> Given:
        """Count steps as if each row ran its whole share, until the launch is read."""
        self.cached_B += share_B
        return Given(self, share_B, self.company.left_B)

    def take_back(self, given: Given, rows_R: Counts, unrun_R: Counts) -> None:
        """Take back steps that were given and not run, from those who still sit there."""
        stays_R = self._left_B[rows_R] == given.left_B[rows_R]
        self.cached_B[rows_R] -= unrun_R * stays_R


@dataclass(frozen=True, slots=True)
class Given:
    """The steps that a launch gave its rows.

    Attributes:
        steps_B: Of each row.
        left_B: How often each row had been left by then: tells whose steps they were.
    """

    seats: Seats
    steps_B: Counts
    left_B: Counts

    def settle(self, rows_R: Counts, output_RF: Counts) -> None:
        """Take back what rows did not run that go on, because the launch ended early.

        Args:
            rows_R: Rows that were taken.
            output_RF: What each gave; see `ResidentState`.
        """
        unrun_R = self.steps_B[rows_R] - output_RF[:, 0]
        if np.count_nonzero(unrun_R):
            goes_on_R = np.isin(output_RF[:, 1], (Ending.RUNNING, Ending.PAUSED))
            self.seats.take_back(self, rows_R, unrun_R * goes_on_R)
