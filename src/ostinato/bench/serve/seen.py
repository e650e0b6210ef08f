"""What became of one request, as its client saw it; and of all, in numbers. Pure arithmetic.

Every time is in seconds from the beginning of the load. Nothing is left out: what was refused (the
server sheds load), what failed (by kind) and what was answered are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from ostinato.bench.serve.objective import Objective, percentiles

SHED = "shed"
CANCELLED = "cancelled"


class Seen(msgspec.Struct, array_like=True):
    """One request.

    Attributes:
        sent_s: When it was sent, a new connection's making included in what follows.
        late_s: How much later that was than planned: the client's own fault, not the server's.
        first_s: When the first text came; None if none did.
        end_s: When the last text came.
        gaps_s: Between two frames with text.
        tokens: As the server's own usage says; what was asked for, if it does not say.
        error: Its kind, "shed" for a refusal with 429, "cancelled" where the client went away;
            empty for a whole answer.
        retry_after_s: What a refusal said.
        stream: Which stream of a closed loop it was in.
    """

    sent_s: float
    late_s: float = 0.0
    first_s: float | None = None
    end_s: float = 0.0
    gaps_s: list[float] = []
    tokens: int = 0
    status: int = 0
    error: str = ""
    retry_after_s: float | None = None
    is_counted: bool = True
    stream: int = 0

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first text."""
        return None if self.first_s is None else self.first_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Per token behind the first one; None with fewer than two."""
        if self.first_s is None or self.tokens < 2:
            return None
        return (self.end_s - self.first_s) / (self.tokens - 1)

    @property
    def is_whole(self) -> bool:
        """Whether it was answered to the end."""
        return not self.error


@dataclass(frozen=True, slots=True)
class Summary:
    """A load, in numbers; times in milliseconds.

    Attributes:
        requests: Counted ones, whatever became of them.
        shed: Refused with 429.
        shed_without_retry: Of them, without a Retry-After.
        cancelled: By the client, as planned.
        errors: By kind; refusals and cancellations are not among them.
        seconds: From the first counted request to the end of the last.
        tok_s: Tokens of whole answers in these seconds.
        steady_tok_s: The same while every stream of a closed loop was busy; None for an open one.
        goodput_tok_s: Tokens of answers that kept the objective.
        kept: The share of answers that did, of all counted requests but those cancelled.
        kept_of_accepted: Of those that were not refused.
        tokens_per_frame: How many tokens came together.
        late_ms: How late the client itself was.
    """

    requests: int
    whole: int
    shed: int
    shed_without_retry: int
    cancelled: int
    errors: Mapping[str, int]
    seconds: float
    tok_s: float
    goodput_tok_s: float
    requests_s: float
    kept: float
    kept_of_accepted: float
    tokens_per_frame: float
    steady_tok_s: float | None = None
    ttft_ms: Mapping[str, float] = field(default_factory=dict)
    tpot_ms: Mapping[str, float] = field(default_factory=dict)
    gap_ms: Mapping[str, float] = field(default_factory=dict)
    e2e_ms: Mapping[str, float] = field(default_factory=dict)
    late_ms: Mapping[str, float] = field(default_factory=dict)


def summarise(seen: Sequence[Seen], objective: Objective, *, is_closed: bool) -> Summary:
    """Return what the counted requests of one load come to."""
    counted = [one for one in seen if one.is_counted]
    whole = [one for one in counted if one.is_whole]
    shed = [one for one in counted if one.error == SHED]
    cancelled = sum(one.error == CANCELLED for one in counted)
    errors = Counter(one.error for one in counted if one.error not in ("", SHED, CANCELLED))
    began = min((one.sent_s for one in counted), default=0.0)
    seconds = max((one.end_s for one in counted), default=0.0) - began
    tokens = sum(one.tokens for one in whole)
    good = [one for one in whole if objective.is_kept(one.ttft_s, one.tpot_s)]
    asked = len(counted) - cancelled
    frames = sum(len(one.gaps_s) + 1 for one in whole)
    return Summary(
        requests=len(counted),
        whole=len(whole),
        shed=len(shed),
        shed_without_retry=sum(one.retry_after_s is None for one in shed),
        cancelled=cancelled,
        errors=dict(errors.most_common()),
        seconds=seconds,
        tok_s=_per(tokens, seconds),
        goodput_tok_s=_per(sum(one.tokens for one in good), seconds),
        requests_s=_per(len(whole), seconds),
        kept=_per(len(good), asked),
        kept_of_accepted=_per(len(good), asked - len(shed)),
        tokens_per_frame=_per(tokens, frames),
        steady_tok_s=_steady_tok_s(whole) if is_closed else None,
        ttft_ms=_ms([one.ttft_s for one in whole]),
        tpot_ms=_ms([one.tpot_s for one in whole]),
        gap_ms=_ms(list(chain.from_iterable(one.gaps_s for one in whole))),
        e2e_ms=_ms([one.end_s - one.sent_s for one in whole]),
        late_ms=_ms([one.late_s for one in counted]),
    )


def _steady_tok_s(whole: Sequence[Seen]) -> float | None:
    """Return the rate until the first stream had nothing more to ask for.

    An answer's tokens are taken to have come evenly between its first text and its last.
    """
    ends: dict[int, float] = {}
    for one in whole:
        ends[one.stream] = max(ends.get(one.stream, 0.0), one.end_s)
    if not ends:
        return None
    began, end = min(one.sent_s for one in whole), min(ends.values())
    tokens = 0.0
    for one in whole:
        first = one.sent_s if one.first_s is None else one.first_s
        if one.end_s <= end:
            tokens += one.tokens
        elif first < end:
            tokens += one.tokens * (end - first) / (one.end_s - first)
    return _per(tokens, end - began)


def _ms(values: Sequence[float | None]) -> dict[str, float]:
    known = [value * 1e3 for value in values if value is not None]
    return {name: round(value, 4) for name, value in percentiles(known).items()}


def _per(amount: float, by: float) -> float:
    return amount / by if by > 0 else 0.0
