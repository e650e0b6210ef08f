"""What a launch gave, read from the ring when the host gets round to it.

The copy to the host is queued behind the launch, into pinned memory, so that the host can queue
the next launch first and read this one while the device works on: it drains one launch behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from ostinato.llm.request import FinishReason
from ostinato.llm.resident_state import Ending, LogprobRing, ResidentState

_REASONS = MappingProxyType(
    {
        Ending.STOP: FinishReason.STOP,
        Ending.LENGTH: FinishReason.LENGTH,
        Ending.ERROR: FinishReason.ERROR,
        Ending.EMPTY: FinishReason.ABORT,
    }
)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities of the model's own distribution, before penalties and temperature.

    Attributes:
        chosen: Of the token.
        top: The likeliest tokens with theirs, likeliest first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Produced:
    """What one row gave in one launch.

    Attributes:
        tokens: New tokens; the stop token, if one came, is the last of them.
        finish: Why the row ended in or before this launch; None while it runs.
        logprobs: One for each token, if the row asked for them.
    """

    tokens: tuple[int, ...]
    finish: FinishReason | None
    logprobs: tuple[TokenLogprobs, ...] | None


class Launch:
    """A queued launch.

    Attributes:
        steps: Steps that were queued: fewer than asked for if it was cut short.
    """

    def __init__(
        self, state: ResidentState, rows: Mapping[int, int], asked: Mapping[int, int], steps: int
    ) -> None:
        """Queue the copy of what the launch left in `state`.

        Args:
            state: The rows that ran.
            rows: Index into `state` -> the row's number.
            asked: Row number -> likeliest tokens it wants reported; rows without are not in it.
            steps: Steps that were queued.
        """
        self.steps = steps
        self._rows, self._asked = dict(rows), dict(asked)
        self._output = _copy(state.output_BF)
        ring = state.logprobs if asked else None
        self._logprobs = None if ring is None else _copy_ring(ring)
        self._copied: torch.cuda.Event | None = None
        if state.output_BF.is_cuda:
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(state.output_BF.device))

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._copied is None or self._copied.query()

    def wait(self) -> dict[int, Produced]:
        """Wait for the launch, not for those queued behind it; return what each row gave."""
        if self._copied is not None:
            self._copied.synchronize()
        output = self._output.tolist()
        return {row: self._produced(at, row, output[at]) for at, row in self._rows.items()}

    def _produced(self, at: int, row: int, output: list[int]) -> Produced:
        count, ending, *ring = output
        reported = None
        if self._logprobs is not None and row in self._asked:
            most = self._asked[row]
            reported = tuple(self._report(at, place, most) for place in range(count))
        return Produced(tuple(ring[:count]), _REASONS.get(Ending(ending)), reported)

    def _report(self, at: int, place: int, most: int) -> TokenLogprobs:
        assert self._logprobs is not None
        ids = self._logprobs.ids_BKN[at, place, :most].tolist()
        top = self._logprobs.top_BKN[at, place, :most].tolist()
        chosen = float(self._logprobs.chosen_BK[at, place])
        return TokenLogprobs(chosen, tuple(zip(ids, top, strict=True)))


def _copy(tensor: Tensor) -> Tensor:
    """Queue a copy to the host; the allocator of pinned memory reuses blocks when they are free."""
    if not tensor.is_cuda:
        return tensor.clone()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _copy_ring(ring: LogprobRing) -> LogprobRing:
    return LogprobRing(_copy(ring.chosen_BK), _copy(ring.ids_BKN), _copy(ring.top_BKN))
