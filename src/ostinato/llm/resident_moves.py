"""Who comes to a row and who leaves it, kept on the host until the next launch and sent at once.

Seating one request takes a dozen small copies, some 0.3 ms of the host; seating a hundred at once
takes as many. So nothing is sent before a launch needs it.

Shapes: R rows that change, F numbers of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ostinato.llm.resident_state import Ending, ResidentState
from ostinato.llm.sampling_state import Arrival
from ostinato.llm.sending import bring


@dataclass(frozen=True, slots=True)
class Coming:
    """A request on its way to a row.

    Attributes:
        left: Tokens that it may still produce.
        is_bound: It has a grammar, so it waits to be woken before each token.
    """

    arrival: Arrival
    left: int
    is_bound: bool

    @property
    def place(self) -> tuple[int, int, int]:
        """Its last token, where that stands, and where the last one allowed will stand."""
        at = len(self.arrival.ids) - 1
        return self.arrival.ids[-1], at, at + self.left

    @property
    def stands(self) -> Ending:
        """How its row stands to begin with."""
        return Ending.PAUSED if self.is_bound else Ending.RUNNING


class Moves:
    """What has changed in the rows of a state since the last launch."""

    def __init__(self, state: ResidentState, *, is_fused: bool = False) -> None:
        self._state, self._is_fused = state, is_fused
        self._coming: dict[int, Coming] = {}
        self._endings: dict[int, Ending] = {}

    def come(self, coming: Coming) -> None:
        """Note that a request sits down."""
        row = coming.arrival.row
        self._coming[row], self._endings[row] = coming, coming.stands

    def leave(self, row: int) -> None:
        """Note that a row is empty: it is masked from the next launch on."""
        self._coming.pop(row, None)
        self._endings[row] = Ending.EMPTY

    def send(self) -> None:
        """Queue the copies of all that was noted; waits for nothing."""
        if self._endings:
            if self._is_fused:
                # Only here: not every machine has triton.
                from ostinato.llm.kernels.seating import deal_out

                deal_out(self._state, self._endings, self._coming)
            else:
                self._copy()
        self._coming.clear()
        self._endings.clear()

    def _copy(self) -> None:
        state, device = self._state, self._state.place_BF.device
        coming = list(self._coming.values())
        if coming:
            rows_R = bring(torch.tensor(list(self._coming)), device)
            state.sampling.settle([each.arrival for each in coming], rows_R)
            state.seat(rows_R, bring(torch.tensor([each.place for each in coming]), device))
        rows_R = bring(torch.tensor(list(self._endings)), device)
        endings = [int(ending) for ending in self._endings.values()]
        state.set_endings(rows_R, bring(torch.tensor(endings), device))
