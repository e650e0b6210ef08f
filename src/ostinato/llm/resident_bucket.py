"""What a recording of the decode step is keyed by: few sizes, and what its rows ask for."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.llm.sampling import Level


@dataclass(frozen=True, slots=True)
class Bucket:
    """A step that serves every launch up to these sizes.

    Attributes:
        rows: Rows that are computed.
        pages: Pages of each that are looked at.
        level: What sampling computes.
        with_logprobs: Whether log probabilities are reported.
    """

    rows: int
    pages: int
    level: Level
    with_logprobs: bool

    @property
    def key(self) -> tuple[int, int, Level, bool]:
        """The arguments of the step."""
        return self.rows, self.pages, self.level, self.with_logprobs


def power_of_two(wanted: int, most: int) -> int:
    """Return the least power of two that is `wanted` or more, but at most `most`."""
    return min(1 << (wanted - 1).bit_length(), most)
