"""The breaker's state machine; the package's docstring tells what it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor

from ostinato.serve.slo.ladder import Ladder
from ostinato.serve.slo.objectives import Objectives, Rule
from ostinato.serve.slo.windows import Lateness

_TICK_S = 1.0
_MOST_TICKS = 300
"""After a longer silence every window is empty, and every tick would say so."""
_MOST_PATIENCE = 8
_FORGIVEN_S = 600.0
"""So long after it closed, an opening is no relapse any more."""
_LEAST_TO_CONFIRM = 3


class State(StrEnum):
    """Whether the promises are kept."""

    CLOSED = "closed"
    OPEN = "open"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True)
class Burn:
    """How fast the error budget of one promise goes.

    Attributes:
        objective: "ttft" or "itl".
        rate: In the long window; 1 is as fast as it may.
        rate_now: In the short window.
        seen: Observations in the long window.
    """

    objective: str
    length_class: str
    rate: float
    rate_now: float
    seen: int


@dataclass(frozen=True, slots=True)
class Change:
    """The breaker moved.

    Attributes:
        at_s: When, on the clock of the calls.
        rung: How much is shed from now on; 0 is nothing.
        because: The promise that burns fastest, if one does.
    """

    at_s: float
    state: State
    rung: int
    because: Burn | None

    def __str__(self) -> str:
        text = f"{self.state}, rung {self.rung}"
        if self.state is not State.OPEN or self.because is None:
            return text
        promise = f"{self.because.objective} of {self.because.length_class} prompts"
        return f"{text}: {promise} burns {max(self.because.rate, self.because.rate_now):.1f}"


class Breaker:
    """Sheds requests while promises are broken. One thread; times never run back.

    Args:
        objectives: The promises.
    """

    def __init__(self, objectives: Objectives | None = None) -> None:
        self.objectives = Objectives() if objectives is None else objectives
        keep_s = max(rule.window_s for rule in self.objectives.rules)
        self._late = {
            key: Lateness(promise, keep_s) for key, promise in self.objectives.promises().items()
        }
        self._ladder = Ladder()
        self._state = State.CLOSED
        self._burning_since: dict[Rule, float] = {}
        self._now = self._ticked = self._changed = float("-inf")
        self._calm_since: float | None = None
        self._patience = 1
        self._closed_since = float("-inf")
        self._changes: list[Change] = []

    def observe(
        self,
        now: float,
        *,
        ttft_s: float | None = None,
        itl_s: float | None = None,
        count: int = 1,
        length_class: str = "short",
    ) -> None:
        """Note a latency that a client saw; `count` gaps of a block at once."""
        now = self._advance(now)
        for objective, latency_s in (("ttft", ttft_s), ("itl", itl_s)):
            late = self._late.get((objective, length_class))
            if latency_s is not None and late is not None and count > 0:
                late.note(floor(now), latency_s, count)

    def admits(self, priority: int, now: float) -> bool:
        """Say whether a request of this priority may come in; ask once for each request."""
        return self._ladder.admits(priority, floor(self._advance(now)))

    def state(self, now: float) -> State:
        """Return the state."""
        self._advance(now)
        return self._state

    @property
    def rung(self) -> int:
        """How much is shed, 0 being nothing."""
        return self._ladder.rung

    def is_ready(self, now: float) -> bool:
        """Return whether a balancer should send more: False when all is shed that may be."""
        now = self._advance(now)
        return self._state is not State.OPEN or self._ladder.can_climb(floor(now))

    def retry_after_s(self, now: float) -> int:
        """Return when a request that was shed could be let in, at the earliest: whole seconds."""
        now = self._advance(now)
        if self._calm_since is None:
            forgets_s = max(rule.confirm_s for rule in self.objectives.rules)
            return ceil(forgets_s + self._calm_needed_s)
        return max(1, ceil(self._calm_needed_s - (now - self._calm_since)))

    def burns(self, now: float) -> list[Burn]:
        """Return how fast each budget goes, by the first rule's windows."""
        return list(self._burns(self._advance(now), self.objectives.rules[0]))

    def take_changes(self) -> list[Change]:
        """Return what changed since the last call, for the log."""
        changes, self._changes = self._changes, []
        return changes

    @property
    def _calm_needed_s(self) -> float:
        return self.objectives.calm_s * self._patience

    def _advance(self, now: float) -> float:
        """Let time pass up to `now`, tick by tick, as if somebody had asked all the while."""
        self._now = max(self._now, now)
        if self._now - self._ticked > _MOST_TICKS * _TICK_S:
            skipped_from = self._now - _MOST_TICKS * _TICK_S
            self._ticked = max(self._ticked, floor(skipped_from))
        while self._ticked + _TICK_S <= self._now:
            self._ticked += _TICK_S
            self._tick(self._ticked)
        return self._now

    def _tick(self, now: float) -> None:
        if self._state is State.CLOSED:
            self._watch(now)
        else:
            self._steer(now)

    def _watch(self, now: float) -> None:
        """While closed: open when a rule has burned for as long as it says."""
        for rule in self.objectives.rules:
            burning = [burn for burn in self._burns(now, rule) if burn.rate >= rule.burn]
            if not burning:
                self._burning_since.pop(rule, None)
                continue
            since = self._burning_since.setdefault(rule, now)
            if now - since >= rule.for_s and any(b.rate_now >= rule.burn for b in burning):
                self._burning_since.clear()
                self._relapse(is_soon=now - self._closed_since < _FORGIVEN_S)
                self._ladder.climb(floor(now))
                self._move(State.OPEN, now)
                return

    def _relapse(self, *, is_soon: bool) -> None:
        """Wait longer for calm each time that letting all in was a mistake."""
        self._patience = min(self._patience * 2, _MOST_PATIENCE) if is_soon else 1

    def _steer(self, now: float) -> None:
        """While open: shed more while it burns, less when it has been calm."""
        rates = [
            (burn.rate_now, rule.burn)
            for rule in self.objectives.rules
            for burn in self._burns(now, rule)
        ]
        if any(rate >= limit for rate, limit in rates):
            self._calm_since = None
            self._push_back(now)
        elif all(rate < self.objectives.calm_burn for rate, _ in rates):
            self._let_in(now)
        else:  # neither: the hysteresis in which nothing changes
            self._calm_since = None

    def _push_back(self, now: float) -> None:
        if self._state is State.RECOVERING:
            self._relapse(is_soon=True)
        elif now - self._changed < self.objectives.climb_s:
            return
        if self._ladder.climb(floor(now)) or self._state is State.RECOVERING:
            self._move(State.OPEN, now)

    def _let_in(self, now: float) -> None:
        self._calm_since = now if self._calm_since is None else self._calm_since
        if now - self._calm_since < self._calm_needed_s:
            return
        if self._ladder.rung:
            self._ladder.descend()
        elif self._state is State.RECOVERING:  # all are in, and it stayed calm
            self._move(State.CLOSED, now)
            return
        self._move(State.RECOVERING, now)
        self._calm_since = now

    def _move(self, state: State, now: float) -> None:
        if state is State.CLOSED:
            self._closed_since = now
        self._state, self._changed, self._calm_since = state, now, None
        worst = max(self._burns(now, self.objectives.rules[0]), key=lambda b: b.rate, default=None)
        self._changes.append(Change(now, state, self._ladder.rung, worst))

    def _burns(self, now: float, rule: Rule) -> Iterator[Burn]:
        budget = 1.0 - self.objectives.share
        for (objective, length_class), late in self._late.items():
            seen, bad = late.seen(now, rule.window_s)
            seen_now, bad_now = late.seen(now, rule.confirm_s)
            rate = bad / seen / budget if seen >= self.objectives.least else 0.0
            rate_now = bad_now / seen_now / budget if seen_now >= _LEAST_TO_CONFIRM else 0.0
            yield Burn(objective, length_class, rate, rate_now, seen)
