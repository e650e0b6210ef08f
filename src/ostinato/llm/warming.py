"""Recordings made ahead of their use: serve first, record behind, the hottest shape first.

A start does not wait for recordings: the first request makes the one it needs. When there is
nothing to do, this makes the next one, from what an earlier run had in use or, on a GPU, from the
rows that a growing batch comes by.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ostinato.llm.prefill import SHORT
from ostinato.llm.sampling import Level
from ostinato.llm.shapes import Shape, ShapeProfile

if TYPE_CHECKING:
    from ostinato.llm.limits import Limits
    from ostinato.llm.prefill import Prefiller
    from ostinato.llm.resident import Resident
    from ostinato.llm.resident_seat import Wanted

_BEGINNING = (1, 2, 16, 17, 64, 65)
"""Rows for which first tokens are computed by kernels of their own, whose sizes Triton tells apart:
one, what a multiple of 16 allows or not, and what goes by tiles or by the library."""
_log = logging.getLogger(__name__)
_TOKENS_AHEAD = 1024  # of the rows that no profile tells of


class Beginning(NamedTuple):
    """First tokens of so many rows, out of what a prefill computed."""

    rows: int
    level: Level


_Ahead = Shape | int | Beginning
"""Rows of a decode step, tokens of a prefill, or rows that begin."""


class Warming:
    """What is in use, and what is still to be recorded.

    Attributes:
        is_done: Nothing is left to be recorded ahead.
    """

    def __init__(
        self,
        resident: Resident,
        prefiller: Prefiller,
        limits: Limits,
        profile: ShapeProfile | None,
        *,
        is_gpu: bool,
        begins_in_prefill: bool = False,
    ) -> None:
        self._resident, self._limits = resident, limits
        self._prefiller = prefiller
        wanted = [shape for shape in profile.hottest() if self._fits(shape)] if profile else []
        # On a CPU a recording takes as long as some steps do: none is made on a guess.
        guessed: list[_Ahead] = [*self._prefills(), *self._growing()] if is_gpu else []
        if is_gpu and begins_in_prefill:
            guessed = [*self._beginnings(), *guessed]
        self._left: deque[_Ahead] = deque(dict.fromkeys([*wanted, *guessed]))
        self._done: set[_Ahead] = set()
        self.is_done = not self._left
        self.profile = ShapeProfile()

    def note(self, wanted: Wanted) -> None:
        """Count what a launch asked of its recording."""
        shape = Shape(
            rows=_power_of_two(wanted.rows),
            pages=_power_of_two(wanted.pages),
            level=self._resident.level_for([wanted.level]),
            with_logprobs=wanted.with_logprobs,
        )
        self._done.add(shape)
        self.profile.note(shape)

    def warm_one(self) -> bool:
        """Record the next shape; False if none is left."""
        while self._left:
            shape = self._left.popleft()
            if shape in self._done:
                continue
            self._done.add(shape)
            if isinstance(shape, int):
                self._prefiller.warm(shape, chunks=1 + shape // SHORT)
            elif isinstance(shape, Beginning):
                hidden_SE = self._prefiller.no_hidden(shape.rows)
                self._resident.warm_begin(hidden_SE, shape.level)
            else:
                self._resident.warm(
                    shape.rows, shape.pages, Level(shape.level), with_logprobs=shape.with_logprobs
                )
            return True
        self.is_done = True
        return False

    def give_up(self) -> None:
        """Record nothing more ahead."""
        self._left.clear()
        self.is_done = True

    def _fits(self, shape: Shape) -> bool:
        rows, pages = self._limits.max_batch, self._limits.pages_for(self._limits.max_model_len)
        return (
            1 <= shape.rows <= _power_of_two(rows)
            and 1 <= shape.pages <= _power_of_two(pages)
            and shape.level in tuple(Level)
        )

    def _beginnings(self) -> Iterable[Beginning]:
        for level in self._resident.levels:
            if level is not Level.FULL:  # which needs a launch
                rows = (each for each in _BEGINNING if each <= self._limits.max_batch)
                yield from (Beginning(each, level) for each in rows)

    def _prefills(self) -> Iterable[int]:
        yield from self._prefiller.buckets
        yield self._limits.prefill_tokens

    def _growing(self) -> Iterable[Shape]:
        tokens = min(_TOKENS_AHEAD, self._limits.max_model_len)
        pages = _power_of_two(self._limits.pages_for(tokens))
        rows = [1 << power for power in range(self._limits.max_batch.bit_length())]
        for level in self._resident.levels:
            yield from (Shape(each, pages, level) for each in rows)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
