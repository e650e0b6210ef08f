"""What comes back: pieces of an answer as they come, and whole answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostinato.errors import OstinatoError
from ostinato.llm.request import FinishReason

if TYPE_CHECKING:
    from ostinato.llm.resident_launch import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Metrics:
    """How long a request took, as the host saw it.

    Attributes:
        ttft_s: From its arrival to its first token; None if none came.
        tpot_s: Between two tokens, on average; None with fewer than two.
        queued_s: From its arrival to its admission; None if it never was admitted.
        cached_tokens: Prompt tokens whose keys and values were found in the prefix cache.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    queued_s: float | None = None
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """What came since the last one: a slow reader gets fewer and larger ones.

    Attributes:
        text: Certain text; the texts of all deltas joined are the answer.
        token_ids: New tokens; the last ones may say text that comes with a later delta.
        logprobs: One for each token, if they were asked for.
        finish_reason: Set in the last delta of a choice.
        index: Which of the request's `n` answers.
        error: Why it ended, where `finish_reason` is "error".
        metrics: With the last delta.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    index: int = 0
    error: OstinatoError | None = None
    metrics: Metrics | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One whole answer; see `Delta` for what the fields mean."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...] | None
    metrics: Metrics
    error: OstinatoError | None


@dataclass(frozen=True, slots=True)
class Output:
    """All answers to one prompt. The short names below are those of the first.

    Attributes:
        request_id: The request's name.
        prompt_ids: The prompt.
        choices: The `n` answers.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    choices: tuple[Choice, ...]

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.choices[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        return self.choices[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        return self.choices[0].logprobs

    @property
    def metrics(self) -> Metrics:
        return self.choices[0].metrics

    @property
    def error(self) -> OstinatoError | None:
        return self.choices[0].error
