"""The loop of one request: prefill, then steps in bursts, with a look at the device in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ostinato.graphs import Outcome
from ostinato.hf.request import Request
from ostinato.hf.session import Session


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


def produce(session: Session, request: Request, bucket: int | None, look_every: int) -> Produced:
    """Run one request to its end.

    The host looks at the device every `look_every` steps only, to stream and to stop; what the
    device produced beyond the last unfinished row is cut off.
    """
    if request.streamer is not None:
        request.streamer.put(request.given.cpu())
    prefill = session.begin(request, bucket)
    steps = Steps()
    looks = request.plan.stops or request.streamer is not None
    made, streamed = 1, 0
    width = made
    while True:
        if looks:
            progress = session.state.look()
            width = progress.width
            streamed = _stream(session, request, streamed, width)
            if progress.is_done and request.plan.stops:
                break
        if made >= request.max_new_tokens:
            break
        burst = request.max_new_tokens - made
        if looks:
            burst = min(burst, look_every)
        _advance(session, request, burst, steps)
        made += burst
        width = made
    new_tokens = session.state.new_tokens_BL[:, :width].clone()
    session.end()
    if request.streamer is not None:
        request.streamer.end()
    return Produced(new_tokens, prefill, steps)


def _advance(session: Session, request: Request, burst: int, steps: Steps) -> None:
    """Run `burst` decode steps without waiting for any."""
    recorded = session.recorded_for(request.plan)
    decode = recorded.decode
    if steps.total == 0:
        recorded.record_ahead()
    for _ in range(burst):
        decode()
        steps.last = decode.last
        steps.replayed += steps.last.outcome is Outcome.REPLAYED
    steps.total += burst


def _stream(session: Session, request: Request, streamed: int, width: int) -> int:
    if request.streamer is not None:
        for token_B in session.state.new_tokens_BL[:, streamed:width].cpu().unbind(dim=1):
            request.streamer.put(token_B)
    return width
