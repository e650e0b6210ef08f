"""The decode state: every number that a step reads or moves on, at addresses that stay.

Shapes: B rows, P pages per row, K ring places, N likeliest tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

import torch
from torch import Tensor

from ostinato.llm import sampling_state
from ostinato.llm.sampling import SamplingState
from ostinato.llm.sampling_logprobs import Logprobs

_TOKEN, _POSITION, _LAST, _PLACES = range(4)
_COUNT, _ENDING, _RING = range(3)


class Ending(IntEnum):
    """How a row stands, as the device knows it."""

    RUNNING = 0
    STOP = 1
    LENGTH = 2
    ERROR = 3
    EMPTY = 4
    PAUSED = 5
    """It has a grammar, and waits to be told what may come next."""


@dataclass(frozen=True, slots=True)
class LogprobRing:
    """Log probabilities of the ring's tokens; the last place takes what masked rows write.

    Attributes:
        chosen_BK: Of each token.
        ids_BKN: The likeliest tokens beside it.
        top_BKN: Their log probabilities.
    """

    chosen_BK: Tensor
    ids_BKN: Tensor
    top_BKN: Tensor

    @classmethod
    def empty(cls, rows: int, places: int, most: int, device: torch.device) -> Self:
        """Make a ring of `places` places for `most` likeliest tokens."""
        shape = (rows, places, most)
        return cls(
            torch.zeros(rows, places, device=device),
            torch.zeros(shape, dtype=torch.long, device=device),
            torch.zeros(shape, device=device),
        )

    def note(self, at_B: Tensor, new: Logprobs) -> None:
        """Write one token's log probabilities at the row's place.

        Capture:
            Safe.
        """
        at_B11 = at_B[:, None, None].expand(-1, 1, self.ids_BKN.shape[2])
        self.chosen_BK.scatter_(1, at_B[:, None], new.chosen_B[:, None])
        self.ids_BKN.scatter_(1, at_B11, new.ids_BN[:, None])
        self.top_BKN.scatter_(1, at_B11, new.top_BN[:, None])

    def first(self, rows: int) -> LogprobRing:
        """Return the same memory, of the first `rows` rows."""
        return LogprobRing(self.chosen_BK[:rows], self.ids_BKN[:rows], self.top_BKN[:rows])

    def pick(self, rows: Tensor) -> LogprobRing:
        """Return copies of some rows: what a launch of them writes into."""
        return LogprobRing(self.chosen_BK[rows], self.ids_BKN[rows], self.top_BKN[rows])


@dataclass(frozen=True, slots=True)
class ResidentState:
    """The rows.

    Attributes:
        sampling: What sampling knows of them.
        place_BF: int64: the last token known, its position, and that of the last one allowed.
        output_BF: int64: how many tokens this launch gave, how the row stands, and the ring, whose
            last place takes what masked rows write. One tensor, because the host reads it whole.
        pages_BP: int32 page table.
        logprobs: None where no launch may ask for them.
    """

    sampling: SamplingState
    place_BF: Tensor
    output_BF: Tensor
    pages_BP: Tensor
    logprobs: LogprobRing | None

    @classmethod
    def empty(
        cls,
        rows: int,
        *,
        vocabulary: int,
        pages: int,
        page_tokens: int,
        ring: int,
        most_logprobs: int,
        device: torch.device,
    ) -> Self:
        """Make the state of `rows` empty rows."""
        output_BF = torch.zeros(rows, _RING + ring + 1, dtype=torch.long, device=device)
        output_BF[:, _ENDING] = int(Ending.EMPTY)
        ring_of = LogprobRing.empty(rows, ring + 1, most_logprobs, device)
        return cls(
            sampling=SamplingState.empty(rows, vocabulary, pages * page_tokens, device),
            place_BF=torch.zeros(rows, _PLACES, dtype=torch.long, device=device),
            output_BF=output_BF,
            pages_BP=torch.zeros(rows, pages, dtype=torch.int32, device=device),
            logprobs=ring_of if most_logprobs else None,
        )

    def seat(self, rows_R: Tensor, places_RF: Tensor) -> None:
        """Set where rows stand that a request has come to.

        Args:
            rows_R: int64, on the device of the state.
            places_RF: int64, likewise: the last token known, its position, and that of the last one
                allowed.
        """
        self.place_BF.index_copy_(0, rows_R, places_RF)

    def set_endings(self, rows_R: Tensor, endings_R: Tensor) -> None:
        """Set how rows stand from the next step on.

        Args:
            rows_R: int64, on the device of the state.
            endings_R: int64, likewise: numbers of `Ending`.
        """
        self.ending.index_copy_(0, rows_R, endings_R)

    def wake(self, rows_R: Tensor) -> None:
        """Let rows that are paused run one step; others stand as they did.

        Args:
            rows_R: int64, on the device of the state.
        """
        ending_R = self.ending.index_select(0, rows_R)
        is_paused_R = ending_R == int(Ending.PAUSED)
        self.ending.index_copy_(0, rows_R, ending_R.masked_fill(is_paused_R, int(Ending.RUNNING)))

    def first(self, rows: int, pages: int, page_tokens: int) -> ResidentState:
        """Return the same memory, of the first `rows` rows and `pages` pages of each."""
        return ResidentState(
            self.sampling.first(rows, pages * page_tokens),
            self.place_BF[:rows],
            self.output_BF[:rows],
            self.pages_BP[:rows, :pages],
            None if self.logprobs is None else self.logprobs.first(rows),
        )

    def pick(self, rows: Tensor, *, keeps_history: bool = True) -> ResidentState:
        """Return copies of some rows; see `SamplingState.pick`."""
        return replace(
            self,
            sampling=self.sampling.pick(rows, keeps_history=keeps_history),
            place_BF=self.place_BF.index_select(0, rows),
            output_BF=self.output_BF.index_select(0, rows),
            logprobs=None if self.logprobs is None else self.logprobs.pick(rows),
        )

    def put(self, rows: Tensor, picked: ResidentState, *, keeps_history: bool = True) -> None:
        """Copy rows that were picked, and have moved on, back; their rings stay with the copy."""
        if keeps_history:
            self.sampling.put(rows, picked.sampling)
        self.place_BF.index_copy_(0, rows, picked.place_BF)
        self.output_BF.index_copy_(0, rows, picked.output_BF)

    def standing(self) -> tuple[Tensor, Tensor]:
        """Return which rows rest, for whatever reason, and where each row's next token stands.

        Capture:
            Safe.
        """
        return self.ending != int(Ending.RUNNING), self.position + 1

    @property
    def token(self) -> Tensor:
        """The last token known, (B,): the next input."""
        return self.place_BF[:, _TOKEN]

    @property
    def position(self) -> Tensor:
        """Where it stands, (B,)."""
        return self.place_BF[:, _POSITION]

    @property
    def last(self) -> Tensor:
        """Where the last token stands that the row may produce, (B,)."""
        return self.place_BF[:, _LAST]

    @property
    def count(self) -> Tensor:
        """Tokens that the row gave in this launch, (B,)."""
        return self.output_BF[:, _COUNT]

    @property
    def ending(self) -> Tensor:
        """How the row stands, (B,): an `Ending`."""
        return self.output_BF[:, _ENDING]

    @property
    def ring(self) -> Tensor:
        """This launch's tokens, (B, K + 1)."""
        return self.output_BF[:, _RING:]


def row_bytes(*, vocabulary: int, pages: int, page_tokens: int, ring: int, logprobs: int) -> int:
    """Return what one row of such a state takes."""
    places = ring + 1
    reports = places * (4 + 12 * logprobs) if logprobs else 0
    own = 8 * (_PLACES + _RING + places) + 4 * pages + reports
    return own + sampling_state.row_bytes(vocabulary, pages * page_tokens)
