"""The steps in which every row of a batch runs, found by when each row's tokens came.

Long prompts are taken in one after the other, and rows that sit already decode meanwhile: those
steps read few keys, and are no steps of the batch. Neither are the last ones, once a row has ended.
Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ostinato.measure import Spread


@dataclass(frozen=True, slots=True)
class Came:
    """Tokens of one row, as a launch gave them.

    Attributes:
        at_s: On a clock that all rows share.
        tokens: Of this row so far, these included.
    """

    at_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Together:
    """Steps that all rows ran.

    Attributes:
        steps: How many.
        seconds: All of them.
        per_step: From one launch to the next, for each of its steps.
        keys: Keys that a step reads, of all rows, on average.
        before, behind: The steps of the row that ran most before these, and of the one that ran
            most behind them, which do not count.
    """

    steps: int
    seconds: float
    per_step: Spread
    keys: float
    before: int
    behind: int

    @property
    def ms(self) -> float:
        """Per step."""
        return self.seconds / self.steps * 1e3


def has_begun(rows: Sequence[Sequence[Came]]) -> bool:
    """Whether each row has been part of a launch: its first token is its prompt's."""
    return all(len(row) > 1 for row in rows)


def together(rows: Sequence[Sequence[Came]], prompt: int) -> Together:
    """Return the steps from where the last row has joined to before any row came to its end.

    What the last row's first launch brought does not count, and of each row not what came last: a
    launch may have gone on without a row that ended in its middle.

    Args:
        rows: What came to each row, in its order.
        prompt: Tokens of each row's prompt.

    Raises:
        ValueError: There is no such step, or a row did not run in all of them.
    """
    if not has_begun(rows):
        raise ValueError("not every row has run a step")
    last = max(rows, key=lambda row: row[1].at_s)
    end_s = min(row[-1].at_s for row in rows)
    counted = [each for each in last[1:] if each.at_s < end_s]
    if len(counted) < 2:
        raise ValueError("no step was run by all rows: ask for more tokens")
    first, ended = counted[0], counted[-1]
    steps, most = ended.tokens - first.tokens, max(b.tokens - a.tokens for a, b in pairwise(last))
    before = [_tokens_at(row, first.at_s) for row in rows]
    upto = [_tokens_at(row, ended.at_s) for row in rows]
    for number, (began, came) in enumerate(zip(before, upto, strict=True)):
        # What one launch brings reaches the rows one after the other.
        if abs(came - began - steps) > most:
            raise ValueError(
                f"row {number} got {came - began} tokens while another got {steps}: it did not "
                "run in every step"
            )
    times = [(b.at_s - a.at_s) / (b.tokens - a.tokens) * 1e6 for a, b in pairwise(counted)]
    return Together(
        steps,
        ended.at_s - first.at_s,
        Spread.of(times),
        keys=sum(prompt + began + (steps - 1) / 2 for began in before),
        before=max(before),
        behind=max(row[-1].tokens - came for row, came in zip(rows, upto, strict=True)),
    )


def _tokens_at(row: Sequence[Came], at_s: float) -> int:
    return max((each.tokens for each in row if each.at_s <= at_s), default=0)
