"""Keeps the account of one runner: decisions, counts, events, log lines and warnings.

Every outcome passes through here once, so that `last`, `report()`, metrics and logs agree.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import Counter

from ostinato import instruments
from ostinato.graphs.decision import Decision, OstinatoWarning, Outcome
from ostinato.graphs.graph import Graph
from ostinato.graphs.reasons import Reason
from ostinato.graphs.source_lines import users_stacklevel
from ostinato.instruments import Captured, Dropped, RanEagerly, Replayed, Warned

logger = logging.getLogger("ostinato")

# Part of normal life: told in counts and events, not in a log line of its own.
QUIET = frozenset(
    {
        Reason.NOT_ADMITTED_YET,
        Reason.BEING_RECORDED,
        Reason.NESTED_CALL,
        Reason.EAGER_BACKEND,
        Reason.CLOSED,
        Reason.EMPTY_BATCH,
        Reason.INVALIDATED,
    }
)
# Details vary without end, such as sizes: no reason may flood a log, or silence the others.
_MOST_OF_A_REASON = 20


class Chronicle:
    """The account of one runner; all methods are safe to call from several threads.

    Args:
        name: The runner's name in events and logs.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.reasons: Counter[Reason] = Counter()
        self.details: dict[Reason, str] = {}
        self.eager = 0
        self.recorded = 0
        self.compared = 0
        self.recordings = 0
        self.recaptures = 0
        self.evictions = 0
        self.lost_replays = 0
        self.lost_work = 0
        self.padded_rows = 0
        self.real_rows = 0
        self._lock = threading.Lock()
        self._here = threading.local()
        self._latest: Decision | None = None
        self._said: dict[tuple[str, Reason], set[str]] = {}

    @property
    def last(self) -> Decision | None:
        """The decision on this thread's latest call, or else on any thread's."""
        decision: Decision | None = getattr(self._here, "decision", None)
        return decision if decision is not None else self._latest

    def _set_last(self, decision: Decision) -> None:
        self._here.decision = decision
        self._latest = decision

    def replayed(self, graph: Graph, padded: int, real: int) -> None:
        """A replay answered a call. Hold the graph's lock."""
        graph.hits += 1
        self._here.decision = self._latest = graph.decision  # as `_set_last`, without its frame
        if real:
            with self._lock:
                self.padded_rows += padded
                self.real_rows += real
        if instruments.active_for(Replayed):
            instruments.emit(Replayed(self.name, graph.graph_id, padded))

    def agreed(self, graph: Graph, padded: int, real: int) -> None:
        """A replay answered a call that ran eagerly, too. Hold the graph's lock."""
        with self._lock:
            self.compared += 1
        self.replayed(graph, padded, real)

    def replayed_less(self, graph: Graph | None, nodes: int, surplus: int) -> None:
        """So many replays of `nodes` each, counted already, were none. Events are not taken back.

        Args:
            graph: Whose replays they were; None if it is gone.
            nodes: Of the recording.
            surplus: How many.
        """
        if graph is not None:
            with graph.lock:
                graph.hits -= surplus
            return
        with self._lock:
            self.lost_replays -= surplus
            self.lost_work -= surplus * nodes

    def ran_eagerly(self, reason: Reason, detail: str = "", graph_id: str | None = None) -> None:
        """A call runs, or ran, eagerly."""
        with self._lock:
            self.eager += 1
            self._count(reason, detail)
        self._set_last(Decision(Outcome.EAGER, reason, graph_id, detail))
        if instruments.active_for(RanEagerly):
            instruments.emit(RanEagerly(self.name, str(reason), graph_id))
        if reason not in QUIET:
            self._log_once(reason, f"runs eagerly: {reason}", detail, graph_id)

    def not_made(self, reason: Reason, detail: str) -> None:
        """No recording was made ahead of a call: nothing was answered, so no call is counted."""
        if detail:
            with self._lock:
                self.details[reason] = detail
        self._set_last(Decision(Outcome.EAGER, reason, None, detail))
        if reason not in QUIET:
            self._log_once(reason, f"will run eagerly: {reason}", detail, None)

    def made_recording(self, graph: Graph, recapture: Reason | None, *, served: bool) -> None:
        """A recording was made; `served`: beside answering a call."""
        with self._lock:
            self.recordings += 1
            self.recorded += served
            self.recaptures += recapture is not None
        self._set_last(Decision(Outcome.RECORDED, recapture, graph.graph_id))
        if instruments.active_for(Captured):
            instruments.emit(
                Captured(
                    self.name,
                    graph.graph_id,
                    graph.build_seconds,
                    graph.bytes,
                    graph.recording.nodes,
                    recapture is not None,
                    answered_call=served,
                )
            )

    def dropped(self, graph: Graph, reason: Reason, detail: str = "") -> None:
        """A recording was given up. Release it first: then no replay of it is under way."""
        with self._lock:
            self.lost_replays += graph.hits
            self.lost_work += graph.hits * graph.recording.nodes
            self.evictions += reason is Reason.OVER_BUDGET
            self._count(reason, detail)
        if instruments.active_for(Dropped):
            instruments.emit(Dropped(self.name, graph.graph_id, str(reason), graph.bytes))
        if reason not in QUIET:
            self._log_once(reason, f"dropped {graph.graph_id}: {reason}", detail, graph.graph_id)

    def warn(self, reason: Reason, message: str, *, about: str = "") -> None:
        """Warn the user, once per cause.

        Args:
            about: The cause, where the message varies: the name of what changed.
        """
        if self._say("warning", reason, about or message) is None:
            return
        if instruments.active_for(Warned):
            instruments.emit(Warned(self.name, str(reason), message))
        text = f"{self.name}: {message} (ostinato explain {reason})"
        warnings.warn(OstinatoWarning(text), stacklevel=users_stacklevel())

    def _count(self, reason: Reason, detail: str) -> None:
        self.reasons[reason] += 1
        if detail:
            self.details[reason] = detail

    def _log_once(self, reason: Reason, text: str, detail: str, graph_id: str | None) -> None:
        number = self._say("log", reason, detail)
        if number is None:
            return
        logger.warning(
            "%s %s%s%s",
            self.name,
            text,
            f" ({detail})" if detail else "",
            f"; no more of {reason} is logged" if number == _MOST_OF_A_REASON else "",
            extra={"fallback_reason": str(reason), "graph_id": graph_id},
        )

    def _say(self, where: str, reason: Reason, about: str) -> int | None:
        """Return the how-manieth of its reason this is; None if it was said, or enough were."""
        with self._lock:
            said = self._said.setdefault((where, reason), set())
            if about in said or len(said) >= _MOST_OF_A_REASON:
                return None
            said.add(about)
            return len(said)
