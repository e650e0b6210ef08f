"""How an engine stands: what `Engine.health` and `Engine.counts` answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.llm.request import FinishReason
    from ostinato.llm.scheduler import Counts


@dataclass(frozen=True, slots=True)
class Health:
    """Whether an engine can be relied on.

    Attributes:
        why: Why not, if it is not healthy.
        is_taking: Whether it lets new requests in.
        idle_s: Since it last finished a step, or found nothing to do: large while requests live
            means that a step hangs.
        living: Whether requests live.
        is_warm: Whether all steps that are recorded ahead have been.
    """

    is_healthy: bool
    why: str | None
    is_taking: bool
    idle_s: float
    living: bool
    is_warm: bool


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """How an engine stands.

    Attributes:
        scheduler: Who waits and runs, pages, preemptions, the prefix cache.
        ends: Answers that ended, by reason.
        failures: Those in an error by its code, and "step" for steps that failed.
        new_tokens: Tokens of answers that ended.
        steps: Decode steps that were read.
        device_s: Seconds that their launches took on the device; 0 on a CPU.
        bucket_steps: The steps, by the rows that each computed, padding included.
        bucket_tokens: What those steps gave; the other rows were padding or had ended.
        pages: Pages of keys and values there are.
    """

    scheduler: Counts
    ends: Mapping[FinishReason, int]
    failures: Mapping[str, int]
    new_tokens: int
    steps: int
    device_s: float
    bucket_steps: Mapping[int, int]
    bucket_tokens: Mapping[int, int]
    pages: int
