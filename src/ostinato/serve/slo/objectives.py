"""What is promised: how many first tokens and gaps may be late, and when that is too many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType

from ostinato.errors import UsageError

LENGTH_CLASSES = ("short", "medium", "long")
_MEDIUM_FROM, _LONG_FROM = 512, 4096
_FIELD_S = 0.4
_EVERY_CLASS: Mapping[str, float] = MappingProxyType(dict.fromkeys(LENGTH_CLASSES, _FIELD_S))
MOST_WINDOW_S = 3600.0


def length_class(prompt_tokens: int) -> str:
    """Return the class of a prompt: "short" below 512 tokens, "long" from 4096 on, or "medium"."""
    if prompt_tokens < _MEDIUM_FROM:
        return LENGTH_CLASSES[0]
    return LENGTH_CLASSES[1] if prompt_tokens < _LONG_FROM else LENGTH_CLASSES[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When broken promises open the breaker.

    Attributes:
        window_s: The long window: it says that the breach matters.
        confirm_s: The short window: it says that the breach is still there.
        for_s: How long the long window must burn without a break.
        burn: The burn rate at which a window burns; 1 spends the error budget as fast as allowed.
    """

    window_s: float = 60.0
    confirm_s: float = 10.0
    for_s: float = 60.0
    burn: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """The promises of a service, and how the breaker keeps them.

    The default is the field's: the 95th percentile above 400 ms for 60 s opens it, whatever the
    length of the prompt, be it to the first token or between two.

    Attributes:
        ttft_s: Seconds to the first token, by length class; a class left out has no promise.
        itl_s: Seconds between two tokens, likewise.
        share: Which share of them must be within that: 0.95 is the 95th percentile.
        rules: Any of them opens the breaker.
        least: A window with fewer observations says nothing.
        climb_s: While it still burns, so long after the last rung comes the next. Longer than a
            short window: what was late before the rung must be forgotten first.
        calm_s: So long must it be calm before a rung is taken back.
        calm_burn: A short window is calm below this; between it and `burn` nothing changes.

    Raises:
        UsageError: OST6030, a number or a class that makes no sense.
    """

    ttft_s: Mapping[str, float] = field(default_factory=lambda: _EVERY_CLASS)
    itl_s: Mapping[str, float] = field(default_factory=lambda: _EVERY_CLASS)
    share: float = 0.95
    rules: tuple[Rule, ...] = (Rule(),)
    least: int = 20
    climb_s: float = 20.0
    calm_s: float = 30.0
    calm_burn: float = 0.5

    def __post_init__(self) -> None:
        for name in ("ttft_s", "itl_s"):
            for key, seconds in getattr(self, name).items():
                _require(key in LENGTH_CLASSES, name, f"one of {LENGTH_CLASSES}", key)
                _require(0 < seconds < MOST_WINDOW_S, name, "seconds above 0", seconds)
        _require(0 < self.share < 1, "share", "between 0 and 1", self.share)
        _require(bool(self.rules), "rules", "at least one", self.rules)
        _require(self.least >= 1, "least", "1 or more", self.least)
        _require(self.climb_s > 0, "climb_s", "above 0", self.climb_s)
        _require(self.calm_s > 0, "calm_s", "above 0", self.calm_s)
        for rule in self.rules:
            windows = (rule.confirm_s, rule.window_s)
            is_ordered = 1 <= rule.confirm_s <= rule.window_s <= MOST_WINDOW_S
            _require(is_ordered, "windows", "1 s <= confirm_s <= window_s <= 1 h", windows)
            _require(rule.for_s >= 0, "for_s", "0 or more", rule.for_s)
            _require(rule.burn > 0, "burn", "above 0", rule.burn)
            _require(0 <= self.calm_burn <= rule.burn, "calm_burn", "at most burn", self.calm_burn)

    def promises(self) -> dict[tuple[str, str], float]:
        """Return (objective, length class) -> seconds, the objective being "ttft" or "itl"."""
        kinds = (("ttft", self.ttft_s), ("itl", self.itl_s))
        return {
            (name, each): seconds[each]
            for (name, seconds), each in product(kinds, LENGTH_CLASSES)
            if each in seconds
        }


def _require(holds: bool, name: str, must: str, got: object) -> None:
    if not holds:
        raise UsageError(
            f"the objectives' {name} must be {must}, got {got!r}",
            code="OST6030",
            remedy="declare objectives such as Objectives(ttft_s={'short': 0.4}, share=0.95)",
        )
