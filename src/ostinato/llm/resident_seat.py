"""What the host keeps of each row of the decode loop: enough never to have to ask the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.llm.resident_launch import Produced
from ostinato.llm.sampling import Level


@dataclass(slots=True)
class Seat:
    """What the host knows of a row without asking the device.

    Attributes:
        cached: Tokens whose keys and values are stored, if the row ran all steps of the launches
            that have not been read yet.
        most: Tokens whose keys and values it can ever need.
        pages: Pages granted.
        logprobs: Likeliest tokens it wants reported; None for no report.
        is_bound: It has a grammar: a launch gives it one token if `set_allowed` came before.
    """

    cached: int
    most: int
    level: Level
    logprobs: int | None
    is_bound: bool
    pages: int = 0

    def needs(self, steps: int) -> int:
        """Tokens that must have a place in pages for `steps` more steps."""
        return min(self.cached + steps, self.most)


def nothing_to_settle(produced: Mapping[int, Produced]) -> None:
    """A first token needs no second look: the row was given one step and ran it."""


def settle(
    seats: Mapping[int, Seat], given: Mapping[int, int], produced: Mapping[int, Produced]
) -> None:
    """Take back the steps that a launch was given and did not run, because it ended early."""
    for row, gave in produced.items():
        if gave.finish is None:
            seats[row].cached -= given[row] - len(gave.tokens)
