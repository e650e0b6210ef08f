"""What a launch gave, read from the ring when the host gets round to it.

The copy to the host is queued behind the launch, into pinned memory, so that the host can queue
the next launch first and read this one while the device works on: it drains one launch behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from ostinato.llm.request import FinishReason
from ostinato.llm.resident_state import Ending, LogprobRing

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
        steps: The most steps that it ran: on a GPU, those it may have run; it can end early. 0
            where the tokens came of a prefill.
        bucket_rows: Rows that each step computed, padding included.
    """

    def __init__(
        self,
        output_BF: Tensor,
        ring: LogprobRing | None,
        rows: Mapping[int, int],
        asked: Mapping[int, int],
        steps: int,
        on_read: Callable[[Mapping[int, Produced]], None],
        began: torch.cuda.Event | None = None,
    ) -> None:
        """Queue the copy of what the launch leaves in its state.

        Args:
            output_BF: Of the rows that run; see `ResidentState`.
            ring: Their log probabilities, if any launch may report them.
            rows: Index into the state -> the row's number.
            asked: Row number -> likeliest tokens it wants reported; rows without are not in it.
            steps: The most steps that it runs.
            on_read: Told what it gave, once.
            began: Recorded, with timing, before its first step was queued; None on a CPU.
        """
        self.steps = steps
        self.bucket_rows = len(output_BF)
        self._began = began
        self._rows, self._asked = dict(rows), dict(asked)
        self._on_read = on_read
        self._gave: dict[int, Produced] | None = None
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

    def wait(self) -> dict[int, Produced]:
        """Wait for the launch, not for those queued behind it; return what each row gave."""
        if self._gave is None:
            if self._copied is not None:
                self._copied.synchronize()
            output = self._output.tolist()
            self._gave = {
                row: self._produced(at, row, output[at]) for at, row in self._rows.items()
            }
            self._on_read(self._gave)
        return self._gave

    @property
    def device_s(self) -> float:
        """Seconds from its first step's start to its end, on the device; 0 on a CPU.

        Only once it has been read.
        """
        if self._began is None or self._copied is None:
            return 0.0
        milliseconds: float = self._began.elapsed_time(self._copied)
        return milliseconds / 1e3

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
