"""What a launch gave, read from the ring when the host gets round to it.

The copy to the host is queued behind the launch, into pinned memory, so that the host can queue
the next launch first and read this one while the device works on: it drains one launch behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ostinato.llm.request import FinishReason
from ostinato.llm.resident_state import Ending, LogprobRing

if TYPE_CHECKING:
    from ostinato.llm.resident_seat import Counts, Given, Wanted

_FINISHES = MappingProxyType(
    {
        Ending.RUNNING: None,
        Ending.PAUSED: None,
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
    """What a launch gave, by row. Most rows give tokens and nothing else.

    Attributes:
        tokens: New tokens of every row; the stop token, if one came, is the last of them.
        finishes: Why rows ended in or before this launch; those that run are not in it.
        logprobs: One for each token, of rows that asked for them.
    """

    tokens: dict[int, tuple[int, ...]] = field(default_factory=dict)
    finishes: dict[int, FinishReason] = field(default_factory=dict)
    logprobs: dict[int, tuple[TokenLogprobs, ...]] = field(default_factory=dict)


class Launch:
    """A queued launch.

    Attributes:
        steps: The most steps that it ran: on a GPU, those it may have run; it can end early. 0
            where the tokens came of a prefill.
        bucket_rows: Rows that each step computed, padding included.
        wanted: What it asked of its recording; None where the tokens came of a prefill.
    """

    def __init__(
        self,
        output_BF: Tensor,
        ring: LogprobRing | None,
        rows_R: Counts,
        at_R: Counts,
        asked: Mapping[int, int],
        given: Given,
        *,
        steps: int = 0,
        wanted: Wanted | None = None,
        began: torch.cuda.Event | None = None,
    ) -> None:
        """Queue the copy of what the launch leaves in its state.

        Args:
            output_BF: Of the rows that run; see `ResidentState`.
            ring: Their log probabilities, if any launch may report them.
            rows_R: Rows that are taken.
            at_R: Where in `output_BF` and `ring` each of them stands, in ascending order.
            asked: Row -> likeliest tokens it wants reported; rows without are not in it.
            given: The steps that each row was given.
            steps: The most steps that it runs.
            wanted: What it asked of its recording; None if there is none.
            began: Recorded, with timing, before its first step was queued; None on a CPU.
        """
        self.steps, self.wanted = steps, wanted
        self.bucket_rows = len(output_BF)
        self._began = began
        self._rows_R, self._at_R = rows_R, at_R
        self._asked, self._given = asked, given
        self._produced: Produced | None = None
        self._output = _copy(output_BF)
        self._logprobs = _copy_ring(ring) if ring is not None and asked else None
        self._copied: torch.cuda.Event | None = None
        if output_BF.is_cuda:
            self._copied = torch.cuda.Event(enable_timing=began is not None)
            self._copied.record(torch.cuda.current_stream(output_BF.device))

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._copied is None or self._copied.query()

    def wait(self) -> Produced:
        """Wait for the launch, not for those queued behind it; return what each row gave."""
        if self._produced is None:
            if self._copied is not None:
                self._copied.synchronize()
            self._produced = self._read()
        return self._produced

    @property
    def device_s(self) -> float:
        """Seconds from its first step's start to its end, on the device; 0 on a CPU.

        Only once it has been read.
        """
        if self._began is None or self._copied is None:
            return 0.0
        milliseconds: float = self._began.elapsed_time(self._copied)
        return milliseconds / 1e3

    def _read(self) -> Produced:
        output_RF = self._output.numpy()
        if len(self._at_R) < len(output_RF):  # not all of them, which stand in order
            output_RF = output_RF[self._at_R]
        self._given.settle(self._rows_R, output_RF)
        counts, endings, *places = output_RF.T.tolist()
        most = max(1, *counts)
        tokens = [
            ring if count == most else ring[:count]
            for ring, count in zip(zip(*places[:most], strict=True), counts, strict=True)
        ]
        rows = self._rows_R.tolist()
        return Produced(
            dict(zip(rows, tokens, strict=True)),
            {
                row: finish
                for row, ending in zip(rows, endings, strict=True)
                if ending and (finish := _FINISHES[ending])
            },
            self._reports(rows, tokens),
        )

    def _reports(
        self, rows: Sequence[int], tokens: Sequence[tuple[int, ...]]
    ) -> dict[int, tuple[TokenLogprobs, ...]]:
        if self._logprobs is None:
            return {}
        return {
            row: self._report(at, len(new), self._asked[row])
            for row, at, new in zip(rows, self._at_R.tolist(), tokens, strict=True)
            if row in self._asked
        }

    def _report(self, at: int, count: int, most: int) -> tuple[TokenLogprobs, ...]:
        assert self._logprobs is not None
        chosen = self._logprobs.chosen_BK[at, :count].tolist()
        ids = self._logprobs.ids_BKN[at, :count, :most].tolist()
        top = self._logprobs.top_BKN[at, :count, :most].tolist()
        return tuple(
            TokenLogprobs(one, tuple(zip(ids, top, strict=True)))
            for one, ids, top in zip(chosen, ids, top, strict=True)
        )


def _copy(tensor: Tensor) -> Tensor:
    """Queue a copy to the host; the allocator of pinned memory reuses blocks when they are free."""
    if not tensor.is_cuda:
        return tensor.clone()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _copy_ring(ring: LogprobRing) -> LogprobRing:
    return LogprobRing(_copy(ring.chosen_BK), _copy(ring.ids_BKN), _copy(ring.top_BKN))
