"""A service in a clock of its own: so much comes, so much gets done, the rest waits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ostinato.serve.slo import Breaker, Change, State


@dataclass
class Second:
    """What happened in one second."""

    state: State
    rung: int
    is_ready: bool
    let_in: Counter[int] = field(default_factory=Counter)
    shed: Counter[int] = field(default_factory=Counter)
    worst_s: float = 0.0


@dataclass
class Service:
    """First come, first served, from a queue with a bound.

    Attributes:
        capacity: Requests that it answers in a second.
        base_s: What a request takes at the least.
        room: The most that wait; one more is refused by the queue, not by the breaker.
    """

    breaker: Breaker
    capacity: float
    base_s: float = 0.05
    room: int = 200
    now: float = 0.0
    history: list[Second] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    _waiting: deque[float] = field(default_factory=deque)

    def run(self, seconds: int, traffic: Mapping[int, int]) -> list[Second]:
        """Let requests of each priority come evenly for so many seconds."""
        before = len(self.history)
        for _ in range(seconds):
            self._one_second(traffic)
        return self.history[before:]

    def until(self, is_reached: Callable[[Second], bool], traffic: Mapping[int, int]) -> float:
        """Run until a second is like that; return how long it took."""
        began = self.now
        while not is_reached(self.run(1, traffic)[0]):
            assert self.now - began < 3600, "it never was"
        return self.now - began

    def _one_second(self, traffic: Mapping[int, int]) -> None:
        seen = Second(self.breaker.state(self.now), self.breaker.rung, True)
        comes = sorted(
            (self.now + (each + 0.5) / count, priority)
            for priority, count in traffic.items()
            for each in range(count)
        )
        for at, priority in comes:
            if self.breaker.admits(priority, at):
                seen.let_in[priority] += 1
                if len(self._waiting) < self.room:
                    self._waiting.append(at)
            else:
                seen.shed[priority] += 1
        self.now += 1.0
        for _ in range(int(self.capacity)):
            if not self._waiting:
                break
            latency = max(0.0, self.now - 1.0 - self._waiting.popleft()) + self.base_s
            seen.worst_s = max(seen.worst_s, latency)
            self.breaker.observe(self.now, ttft_s=latency)
        seen.is_ready = self.breaker.is_ready(self.now)
        self.changes += self.breaker.take_changes()
        self.history.append(seen)
