"""Events that the runtime tells of, and who listens.

The runtime does not know who watches: it emits small plain events, and instruments (metrics, logs,
reports, the doctor) override the methods they want. A method that nobody overrides costs nothing:
`active_for(Replayed)` is False and the event is never built. An instrument that raises is detached
and logged, so listening can never break a call.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

logger = logging.getLogger("ostinato")


@dataclass(frozen=True, slots=True)
class Captured:
    """A recording was made.

    Attributes:
        recapture: True when this signature had a recording before that was dropped.
        answered_call: True when it was made beside answering a call, False when ahead of one.
    """

    runner: str
    graph_id: str
    seconds: float
    bytes: int
    nodes: int
    recapture: bool
    answered_call: bool = True


@dataclass(frozen=True, slots=True)
class Replayed:
    """A call was answered by a recording, with `padded_rows` rows that were padding."""

    runner: str
    graph_id: str
    padded_rows: int


@dataclass(frozen=True, slots=True)
class RanEagerly:
    """A call ran eagerly; `reason` is a word that `ostinato explain` knows."""

    runner: str
    reason: str
    graph_id: str | None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A recording was given up: evicted, invalidated, unprofitable, quarantined or closed."""

    runner: str
    graph_id: str
    reason: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Warned:
    """The runtime warned; `code` is a word or code that `ostinato explain` knows."""

    runner: str
    code: str
    message: str


Event = Captured | Replayed | RanEagerly | Dropped | Warned


class Instrument:
    """Subclass it and override what you want to hear; every method here does nothing."""

    def captured(self, event: Captured) -> None:
        """A recording was made."""

    def replayed(self, event: Replayed) -> None:
        """A call was answered by a recording."""

    def ran_eagerly(self, event: RanEagerly) -> None:
        """A call ran eagerly, for a reason."""

    def dropped(self, event: Dropped) -> None:
        """A recording was given up, for a reason."""

    def warned(self, event: Warned) -> None:
        """The runtime warned of something."""


_HOOKS: dict[type[Event], str] = {
    Captured: "captured",
    Replayed: "replayed",
    RanEagerly: "ran_eagerly",
    Dropped: "dropped",
    Warned: "warned",
}


def _overrides(instrument: Instrument, hook: str) -> bool:
    return getattr(type(instrument), hook) is not getattr(Instrument, hook)


class Listeners:
    """Who hears what.

    Instruments come and go under a lock, which replaces the tables whole; `emit` reads one table
    without a lock, so an event that is under way is told to those who listened when it began.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._instruments: tuple[Instrument, ...] = ()
        self._hearing: dict[type[Event], tuple[Instrument, ...]] = {}

    def add(self, instrument: Instrument) -> None:
        """Let `instrument` hear the events whose methods it overrides; twice is once."""
        with self._lock:
            if not any(known is instrument for known in self._instruments):
                self._seat((*self._instruments, instrument))

    def remove(self, instrument: Instrument) -> None:
        """Stop telling `instrument`; one that does not listen is no error."""
        with self._lock:
            self._seat(tuple(known for known in self._instruments if known is not instrument))

    def _seat(self, instruments: tuple[Instrument, ...]) -> None:
        hearing = {
            event: tuple(each for each in instruments if _overrides(each, hook))
            for event, hook in _HOOKS.items()
        }
        self._instruments = instruments
        self._hearing = {event: heard_by for event, heard_by in hearing.items() if heard_by}

    def active(self) -> bool:
        """Return whether anybody listens to anything."""
        return bool(self._hearing)

    def active_for(self, event: type[Event]) -> bool:
        """Return whether anybody listens to events of this type."""
        return event in self._hearing

    def emit(self, event: Event) -> None:
        """Tell everybody who listens; one that raises is detached and logged.

        Capture:
            Safe as long as the listeners are: call it outside a recording.
        """
        for instrument in self._hearing.get(type(event), ()):
            try:
                getattr(instrument, _HOOKS[type(event)])(event)
            except Exception:  # a listener may raise anything, and must not break a call
                self.remove(instrument)
                logger.exception(
                    "the instrument %s raised in %s and was detached",
                    type(instrument).__qualname__,
                    _HOOKS[type(event)],
                )


_process = Listeners()
add = _process.add
remove = _process.remove
active = _process.active
active_for = _process.active_for
emit = _process.emit


class LogInstrument(Instrument):
    """Writes every eager call, dropped recording and warning to the "ostinato" log.

    Each record carries `fallback_reason` and `graph_id` as attributes beside the logging timestamp,
    so that a structured formatter can put them in fields. Nothing is held back or rate-limited.
    """

    def __init__(self, log: logging.Logger = logger) -> None:
        self._log = log

    def ran_eagerly(self, event: RanEagerly) -> None:
        """Log one call that ran eagerly, at INFO."""
        self._log.info(
            "%s ran eagerly: %s",
            event.runner,
            event.reason,
            extra={"fallback_reason": event.reason, "graph_id": event.graph_id},
        )

    def dropped(self, event: Dropped) -> None:
        """Log one recording that was given up, at INFO."""
        self._log.info(
            "%s dropped recording %s: %s",
            event.runner,
            event.graph_id,
            event.reason,
            extra={"fallback_reason": event.reason, "graph_id": event.graph_id},
        )

    def warned(self, event: Warned) -> None:
        """Log one warning, at WARNING."""
        self._log.warning(
            "%s: %s: %s",
            event.runner,
            event.code,
            event.message,
            extra={"fallback_reason": event.code, "graph_id": None},
        )
