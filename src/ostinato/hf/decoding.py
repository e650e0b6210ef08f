"""The loop of one request: prefill, then steps in bursts, with a look at the device in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ostinato.hf.request import Request
from ostinato.hf.session import Recorded, Session


@dataclass(slots=True)
class Steps:
    """How the decode steps of one request were answered.

    Attributes:
        total: Steps run, surplus ones included.
        replayed: Of those, how many were replays.
        last: The runner's last decision.
    """

    total: int = 0
    replayed: int = 0
    last: Any = None

    def correct(self, total: int) -> int:
        """Take note of the true number: a series on the device may have ended before the most.

        Returns:
            How many steps were counted too many.
        """
        surplus = self.total - total
        self.replayed -= surplus
        self.total = total
        return surplus


@dataclass(slots=True)
class Produced:
    """What one request produced.

    Attributes:
        new_tokens_BN: N tokens per row, on the model's device, owned.
        prefill: The runner's decision about the prefill; None when its length has no bucket.
    """

    new_tokens_BN: Tensor
    prefill: Any
    steps: Steps = field(default_factory=Steps)


def produce(
    session: Session, request: Request, bucket: int | None, look_every: Callable[[Recorded], int]
) -> Produced:
    """Run one request to its end.

    The host looks at the device every few steps only, to stream and to stop. A series of steps ends
    where the last row finishes, if the device can see to that by itself; what it produced beyond is
    cut off.

    Args:
        session: The request's rows are this session's.
        request: What is asked for.
        bucket: Length to pad the prompt to, or None.
        look_every: Says how many steps to run between two looks, once the step is recorded.
    """
    if request.streamer is not None:
        request.streamer.put(request.given.cpu())
    prefill = session.begin(request, bucket)
    steps = Steps()
    looks = request.plan.stops or request.streamer is not None
    made, streamed = 1, 0
    width = made
    recorded: Recorded | None = None
    while True:
        if looks:
            progress = session.state.look()
            width = progress.width
            surplus = steps.correct(progress.produced - 1)
            if recorded is not None:
                recorded.steps.take_back(surplus)
            streamed = _stream(session, request, streamed, width)
            if progress.is_done and request.plan.stops:
                break
        if made >= request.max_new_tokens:
            break
        recorded = session.recorded_for(request.plan)
        if steps.total == 0:
            recorded.record_ahead()
        burst = request.max_new_tokens - made
        if looks:
            burst = min(burst, look_every(recorded))
        _advance(recorded, burst, steps)
        made += burst
        width = made
    new_tokens = session.state.new_tokens_BL[:, :width].clone()
    session.end()
    if request.streamer is not None:
        request.streamer.end()
    return Produced(new_tokens, prefill, steps)


def _advance(recorded: Recorded, burst: int, steps: Steps) -> None:
    """Run up to `burst` decode steps without waiting for any."""
    steps.total += recorded.steps.run(burst)
    steps.replayed += recorded.steps.replays
    steps.last = recorded.decode.last


def _stream(session: Session, request: Request, streamed: int, width: int) -> int:
    if request.streamer is not None:
        for token_B in session.state.new_tokens_BL[:, streamed:width].cpu().unbind(dim=1):
            request.streamer.put(token_B)
    return width
