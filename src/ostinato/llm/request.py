"""What is asked of the engine, and how an answer can end.

A request is plain, frozen data: it says what is wanted and never how far it has come. How far is
the scheduler's business (`scheduler/progress.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

from ostinato.errors import UsageError
from ostinato.llm.params import SamplingParams

__all__ = ["FinishReason", "Request", "SamplingParams"]


class FinishReason(StrEnum):
    """How an answer ended, in OpenAI's words where it has one."""

    STOP = "stop"
    """The model ended the text, or a stop text or stop token came."""
    LENGTH = "length"
    """The answer has `max_tokens` tokens, or the model or the pages hold no more."""
    ABORT = "abort"
    """Somebody cancelled it."""
    ERROR = "error"
    """The step it was in failed, or its logits were not numbers."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and what to do with it.

    Attributes:
        request_id: Names the request while it lives; no two living requests share one.
        prompt_ids: The prompt's tokens, at least one.
        params: How to draw and when to stop.
        priority: As in vLLM: the smaller, the sooner; 0 is ordinary.
        salt: Requests share cached pages only with requests of the same salt.
        arrival_s: When it came, in seconds on any clock that all requests of an engine share.

    Raises:
        UsageError: OST5004, the prompt is empty; OST5005, an arrival that is not a time.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    salt: str = ""
    arrival_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt_ids", tuple(self.prompt_ids))
        if not self.prompt_ids:
            raise UsageError(
                f"request {self.request_id!r} has an empty prompt",
                code="OST5004",
                remedy="pass a prompt of at least one token, such as the begin-of-text token",
            )
        if not isfinite(self.arrival_s):
            raise UsageError(
                f"request {self.request_id!r} arrived at {self.arrival_s!r}, which is no time",
                code="OST5005",
                remedy="pass arrival_s in seconds, such as time.monotonic()",
            )
