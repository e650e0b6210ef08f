"""The bounds within which the scheduler plans: how much at once, how long, how many may wait."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ostinato.errors import UsageError
from ostinato.llm.refusals import shown

# Planning, launching and reading cost the host up to 7 us a row (two shared cores, 2026-11), and a
# step of a small model on a large GPU takes about a millisecond.
_ROWS_READ_IN_A_STEP = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one engine can hold, and what it may do in one step.

    Attributes:
        max_batch: Rows of the resident state: requests that run at the same time.
        max_model_len: Tokens, prompt and answer together, that the model holds.
        page_tokens: Tokens whose keys and values fill one page.
        prefill_tokens: The most prompt tokens in one plan.
        steps_per_launch: The most decode steps in one launch.
        newcomer_steps: The most steps of a launch that brings somebody the first token, which is
            seen only when the launch is over. With many rows it is one step for each 128, because
            the host needs longer, too, to read a launch.
        max_waiting: The most requests that wait; one more is refused.
        max_waiting_tokens: The most tokens that wait. One prompt alone may be longer than this.
        priority_s: One level of priority is worth so many seconds of waiting. Finite, so that a
            request of low priority is overtaken for a while and never for ever.

    Raises:
        UsageError: OST5006, a bound below 1, or a negative worth of priority.
    """

    max_batch: int = 256
    max_model_len: int = 2048
    page_tokens: int = 16
    prefill_tokens: int = 2048
    steps_per_launch: int = 8
    newcomer_steps: int = 1024
    max_waiting: int = 1024
    max_waiting_tokens: int = 4 * 1024 * 1024
    priority_s: float = 10.0

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            least = 0 if bound.name == "priority_s" else 1
            if not value >= least:
                raise UsageError(
                    f"{bound.name} must be at least {least}, got {shown(value)}",
                    code="OST5006",
                    remedy=f"pass {bound.name} as a number of {least} or more",
                )

    def steps_with_newcomer(self, rows: int) -> int:
        """Return the most steps of a launch of `rows` rows, one of which awaits its first token."""
        return max(self.newcomer_steps, -(-rows // _ROWS_READ_IN_A_STEP))

    def pages_for(self, tokens: int) -> int:
        """Return how many pages hold the keys and values of `tokens` tokens."""
        return -(-tokens // self.page_tokens)
