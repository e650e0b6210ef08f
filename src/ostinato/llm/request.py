"""What is asked of the engine, and how an answer can end.

A request is plain, frozen data: it says what is wanted and never how far it has come. How far is
the scheduler's business (`scheduler/progress.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, isfinite
from typing import Any

from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.params import SamplingParams
from ostinato.llm.refusals import no_params, shown
from ostinato.llm.values import WholeNumbers, whole, whole_numbers

_MOST_PRIORITY = 2**31  # times its worth in seconds, it must not drown the time of arrival

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
        UsageError: OST5004, the prompt is empty; OST5005, an arrival that is not a time; OST5009, a
            priority out of all proportion.
        WrongTypeError: OST5005, OST5009, OST5046, a value has the wrong type.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    salt: str = ""
    arrival_s: float = 0.0

    def __post_init__(self) -> None:
        _check_text("request_id", self.request_id)
        ids = _ids(self.prompt_ids)
        if ids is not self.prompt_ids:
            object.__setattr__(self, "prompt_ids", ids)
        if not isinstance(self.params, SamplingParams):
            raise no_params(self.params)
        priority = whole(self.priority)
        if priority is None:
            raise _wrong("priority", "a whole number", self.priority, WrongTypeError)
        if priority is not self.priority:
            object.__setattr__(self, "priority", priority)
        if abs(priority) > _MOST_PRIORITY:
            raise _wrong("priority", f"within {_MOST_PRIORITY} of 0", self.priority, UsageError)
        _check_text("salt", self.salt)
        self._check_prompt_and_arrival()

    def _check_prompt_and_arrival(self) -> None:
        if not self.prompt_ids:
            raise UsageError(
                "the prompt is empty",
                code="OST5004",
                remedy="pass a prompt of at least one token, such as the begin-of-text token",
            )
        kind = _kind_of_no_time(self.arrival_s)
        if kind is not None:
            raise kind(
                f"request {shown(self.request_id)} arrived at {shown(self.arrival_s)}, which is no "
                "time",
                code="OST5005",
                remedy="pass arrival_s in seconds, such as time.monotonic()",
            )


def _ids(ids: Any) -> tuple[int, ...]:
    if type(ids) is WholeNumbers:
        return ids
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes | bytearray):
        raise _wrong("prompt_ids", "a list of token ids", ids, WrongTypeError)
    read = whole_numbers(ids)
    if read is None:
        strange = next(one for one in ids if whole(one) is None)
        raise _wrong("prompt_ids", "a list of whole numbers", strange, WrongTypeError)
    return read


def _kind_of_no_time(arrival_s: Any) -> type[UsageError] | None:
    """Return the error that an arrival deserves; None for one that is a time."""
    if type(arrival_s) is float and isfinite(arrival_s):
        return None
    if not isinstance(arrival_s, int | float) or isinstance(arrival_s, bool):
        return WrongTypeError
    try:
        seconds = float(arrival_s)
    except OverflowError:  # a whole number too large for any float
        seconds = inf
    return None if isfinite(seconds) else UsageError


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise _wrong(name, "a text", value, WrongTypeError)


def _wrong(name: str, wanted: str, value: object, kind: type[UsageError]) -> UsageError:
    return kind(
        f"{name} of a request must be {wanted}, got {shown(value)}",
        code="OST5009",
        remedy=f"pass a request whose {name} is {wanted}",
    )
